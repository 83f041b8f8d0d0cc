"""Every method that changes something has committed when it returns: another connection sees it, without a close."""

import sqlite3
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from storage.catalog import Catalog
from storage.home import Home
from tests.storage.catalog.builders import new_block, new_document, open_catalog

Change = Callable[[Catalog], object]


def _prepare(catalog: Catalog) -> None:
    """Two ready documents (chunk ids 1 and 2), one being deleted, three blocks (one ready, two being deleted)."""
    for name in ("one", "two", "old"):
        catalog.publish_document(new_document(name))
    catalog.begin_delete("id-old")
    for key in ("kept", "going", "gone"):
        catalog.publish_block(new_block(key), [1])
    catalog.begin_block_delete(["gone"])


CHANGES: dict[str, tuple[Change, str, object]] = {
    "ensure_collection": (lambda c: c.ensure_collection("b", "e", 4, 512), "SELECT count(*) FROM collections", 2),
    "publish_document": (lambda c: c.publish_document(new_document("new")), "SELECT count(*) FROM documents", 4),
    "publish_chunks": (lambda c: c.publish_document(new_document("new")), "SELECT count(*) FROM chunks", 4),
    "publish_vectors": (lambda c: c.publish_document(new_document("new")), "SELECT count(*) FROM vectors", 8),
    "publish_words": (
        lambda c: c.publish_document(new_document("new", ["zebra"])),
        "SELECT count(*) FROM words WHERE words MATCH 'zebra'",
        1,
    ),
    "attach_source": (lambda c: c.attach_source(1, "/b", "id-one", 1, 1), "SELECT count(*) FROM sources", 3),
    "detach_source": (lambda c: c.detach_source(1, "/folder/one.txt"), "SELECT count(*) FROM sources", 1),
    "note_unclaimed": (lambda c: c.note_unclaimed(1, ["f"]), "SELECT count(*) FROM unclaimed_blocks", 1),
    "begin_delete": (
        lambda c: c.begin_delete("id-one"),
        "SELECT count(*) FROM documents WHERE state = 'deleting'",
        2,
    ),
    "finish_delete": (lambda c: c.finish_delete("id-old"), "SELECT count(*) FROM documents", 2),
    "keep_token_ids": (
        lambda c: c.keep_token_ids("t", {1: np.arange(3, dtype=np.int32)}),
        "SELECT length(ids) FROM token_ids",
        12,
    ),
    "publish_block": (lambda c: c.publish_block(new_block("more"), [1]), "SELECT count(*) FROM blocks", 4),
    "publish_block_again": (
        lambda c: c.publish_block(new_block("kept", generation=5), [1]),
        "SELECT generation FROM blocks WHERE key = 'kept'",
        5,
    ),
    "link_block": (lambda c: c.link_block("kept", [2]), "SELECT count(*) FROM block_chunks", 4),
    "begin_block_delete": (
        lambda c: c.begin_block_delete(["going"]),
        "SELECT count(*) FROM blocks WHERE state = 'deleting'",
        2,
    ),
    "finish_block_delete": (lambda c: c.finish_block_delete(["gone"]), "SELECT count(*) FROM blocks", 2),
    "record_uses": (lambda c: c.record_uses([[1]]), "SELECT uses FROM hotness", 1),
    "record_questions": (
        lambda c: c.record_uses([[1], []]),
        "SELECT amount FROM counters WHERE event = 'questions'",
        2,
    ),
    "refuse_codec": (lambda c: c.refuse_codec("kept", "e4m3"), "SELECT codec FROM refused_codecs", "e4m3"),
    "count": (lambda c: c.count("blocks_damaged", 3), "SELECT amount FROM counters", 3),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_is_committed(tmp_path: Path, name: str) -> None:
    change, question, expected = CHANGES[name]
    catalog = open_catalog(tmp_path)
    _prepare(catalog)
    file = catalog._connection.file
    assert _answer(file, question) != expected, "the test could not fail"
    change(catalog)
    assert not catalog._connection._sqlite.in_transaction
    assert _answer(file, question) == expected
    catalog.close()
    assert _answer(file, question) == expected
    with Catalog.open(Home(tmp_path)) as again:
        assert again.faults() == []


def _answer(file: Path, question: str) -> object:
    other = sqlite3.connect(file)
    row = other.execute(question).fetchone()
    other.close()
    return row[0] if row else None
