"""Stored documents: they read back equal, and nothing is believed that is not checked."""

import errno
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from storage.document_files import (
    DocumentFileDamaged,
    StoredDocument,
    document_files,
    publish_document_file,
    read_document_file,
    retire_document_file,
)
from storage.errors import DiskFull
from storage.home import Home
from tests.storage.faulty import Faults

STORED = StoredDocument(
    id="abc-1_2",
    collection="papers",
    digest="00ff",
    title='Title "quoted" é 你好 \u2028',
    kind="pdf",
    source_paths=("/a/b.pdf", "/c.pdf"),
    size_bytes=123,
    flags=("hidden text",),
    text="Line one.\nLine two. " * 3,
    pages=((1, 0, 20), (2, 20, 60)),
    chunks=((0, 10, 1), (10, 60, None)),
    kv="now",
)


@pytest.fixture
def home(tmp_path: Path) -> Home:
    made = Home(tmp_path / "home")
    made.create()
    return made


def test_a_document_reads_back_equal(home: Home) -> None:
    publish_document_file(home, STORED)
    assert read_document_file(home, STORED.id) == STORED
    newer = replace(STORED, title="newer")
    publish_document_file(home, newer)
    assert read_document_file(home, STORED.id) == newer
    assert document_files(home) == [STORED.id]
    retire_document_file(home, STORED.id)
    retire_document_file(home, STORED.id)
    assert document_files(home) == []


@pytest.mark.parametrize("name", ["", "..", "../x", "a/b", "a\0", "a.b", "x" * 129, "é", "a\n"])
def test_an_id_is_never_a_path(home: Home, name: str) -> None:
    for use in (
        lambda: publish_document_file(home, replace(STORED, id=name)),
        lambda: read_document_file(home, name),
        lambda: retire_document_file(home, name),
    ):
        with pytest.raises(DocumentFileDamaged, match="no document id"):
            use()
    assert list(home.documents.iterdir()) == []


DAMAGE: list[tuple[str, Any]] = [
    ("id", "other"),
    ("collection", 3),
    ("digest", None),
    ("title", ["a"]),
    ("kind", {}),
    ("source_paths", "/a"),
    ("source_paths", [1]),
    ("size_bytes", -1),
    ("size_bytes", True),
    ("size_bytes", 1.5),
    ("size_bytes", 10**30),
    ("flags", {"a": 1}),
    ("text", 7),
    ("text", "short"),
    ("pages", [[1, 0]]),
    ("pages", [[1, 5, 3]]),
    ("pages", [[0, 0, 3]]),
    ("pages", [[1, 0, 10**9]]),
    ("pages", [7]),
    ("chunks", [[0, 0, None]]),
    ("chunks", [[-1, 3, None]]),
    ("chunks", [[0, 3, "1"]]),
    ("chunks", [[0, 3, 0]]),
    ("chunks", None),
    ("kv", "soon"),
    ("format_version", None),
    ("format_version", 2),
    ("format_version", "x" * 1000),
]


@pytest.mark.parametrize(("name", "value"), DAMAGE)
def test_a_damaged_field_is_named(home: Home, name: str, value: object) -> None:
    publish_document_file(home, STORED)
    file = home.documents / f"{STORED.id}.json"
    found = json.loads(file.read_text())
    file.write_text(json.dumps({**found, name: value}))
    with pytest.raises(DocumentFileDamaged, match=STORED.id) as caught:
        read_document_file(home, STORED.id)
    message = str(caught.value)
    assert len(message) < 200
    assert "\n" not in message
    assert name in message or name in {"format_version", "text"}
    del found[name]
    file.write_text(json.dumps(found))
    with pytest.raises(DocumentFileDamaged):
        read_document_file(home, STORED.id)


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b"null", b"\xff\xfe\x00", b"[" * 200_000, b"1" * 10_000, b'{"format_version": NaN}']
)
def test_garbage_is_refused(home: Home, content: bytes) -> None:
    (home.documents / "bad.json").write_bytes(content)
    with pytest.raises(DocumentFileDamaged, match=r"bad\.json"):
        read_document_file(home, "bad")


def test_every_truncation_is_refused(home: Home) -> None:
    publish_document_file(home, STORED)
    file = home.documents / f"{STORED.id}.json"
    whole = file.read_bytes()
    for length in range(len(whole)):
        file.write_bytes(whole[:length])
        with pytest.raises(DocumentFileDamaged):
            read_document_file(home, STORED.id)


def test_a_missing_file_and_a_link_are_refused(home: Home, tmp_path: Path) -> None:
    with pytest.raises(DocumentFileDamaged, match="ingest the document again"):
        read_document_file(home, "none")
    publish_document_file(home, STORED)
    (home.documents / "link.json").symlink_to(home.documents / f"{STORED.id}.json")
    with pytest.raises(DocumentFileDamaged):
        read_document_file(home, "link")
    (home.documents / "folder.json").mkdir()
    with pytest.raises(DocumentFileDamaged):
        read_document_file(home, "folder")
    (home.documents / "not an id.json").write_text("{}")
    assert "not an id" not in document_files(home)


def test_a_document_out_of_bounds_is_not_written(home: Home) -> None:
    for bad in (replace(STORED, chunks=((0, 10_000, None),)), replace(STORED, source_paths=("/a\udcff",))):
        with pytest.raises(DocumentFileDamaged):
            publish_document_file(home, bad)
    assert document_files(home) == []


def test_a_full_disk_keeps_the_old_document(home: Home) -> None:
    publish_document_file(home, STORED)
    full = Faults(1, errno.ENOSPC).operations()
    with pytest.raises(DiskFull, match="free some space"):
        publish_document_file(home, replace(STORED, title="new"), operations=full)
    assert read_document_file(home, STORED.id) == STORED


@pytest.mark.parametrize(("name", "value"), [("embedding_fingerprint", 3), ("chunk_tokens", -1), ("chunk_tokens", "9")])
def test_what_a_collection_was_begun_with_is_kept_and_may_be_unknown(home: Home, name: str, value: object) -> None:
    begun = replace(STORED, embedding_fingerprint="abc", chunk_tokens=256)
    publish_document_file(home, begun)
    assert read_document_file(home, STORED.id) == begun
    file = home.documents / f"{STORED.id}.json"
    found = json.loads(file.read_text())
    file.write_text(json.dumps({**found, name: value}))
    with pytest.raises(DocumentFileDamaged, match=name):
        read_document_file(home, STORED.id)
    del found["embedding_fingerprint"], found["chunk_tokens"]
    file.write_text(json.dumps(found))
    assert read_document_file(home, STORED.id) == STORED
