"""Words, vectors, token ids and counters."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from storage.catalog.words import MAX_TERMS, match_expression
from storage.errors import StorageError, UnknownRow
from tests.storage.catalog.builders import new_document, open_catalog, window


def test_words_find_their_chunk_best_first(tmp_path: Path) -> None:
    with open_catalog(tmp_path) as catalog:
        catalog.publish_document(new_document("a", ["the fox", "the fox jumps over a jumping fox", "nothing here"]))
        found = catalog.search_words(1, "Which foxes jumped?", 10)
        assert [chunk_id for chunk_id, _ in found] == [2, 1]
        assert found[0][1] > found[1][1] > 0
        assert catalog.search_words(1, "foxes", 1) == catalog.search_words(1, "fox", 1)
        assert catalog.search_words(2, "fox", 10) == []
        assert catalog.search_words(1, "fox", 0) == []


def test_a_title_counts_less_than_the_text(tmp_path: Path) -> None:
    with open_catalog(tmp_path) as catalog:
        catalog.publish_document(replace(new_document("a", ["some other words"]), title="zebra"))
        catalog.publish_document(replace(new_document("b", ["some zebra words"]), title="other"))
        assert [chunk_id for chunk_id, _ in catalog.search_words(1, "zebra", 5)] == [2, 1]


def test_accents_and_case_do_not_matter(tmp_path: Path) -> None:
    with open_catalog(tmp_path) as catalog:
        catalog.publish_document(new_document("a", ["CAFÉ in Zürich", "आयुर्वेद की पुस्तक"]))
        for question in ("cafe", "Cafe\u0301", "ZURICH?", "zürich"):
            assert [chunk_id for chunk_id, _ in catalog.search_words(1, question, 5)] == [1], question
        assert [chunk_id for chunk_id, _ in catalog.search_words(1, "पुस्तक", 5)] == [2]


def test_an_expression_holds_distinct_telling_words() -> None:
    assert match_expression("What is the the What?") == '"what"'
    assert match_expression("to be or to be") == '"to" OR "be" OR "or"'
    assert match_expression('"; NEAR( ) * - ^ : \x00') == '"near"'
    assert match_expression(" \n?!") == ""
    assert match_expression(" ".join(f"w{n}" for n in range(10_000))).count(" OR ") == MAX_TERMS - 1


def test_vectors_come_back_equal_and_in_order(tmp_path: Path) -> None:
    with open_catalog(tmp_path) as catalog:
        catalog.ensure_collection("other", "embedding-1", 4, 512)
        catalog.publish_document(new_document("a", ["x", "y"]))
        catalog.publish_document(new_document("elsewhere", collection_id=2))
        catalog.publish_document(new_document("b", ["z"]))
        chunk_ids, vectors = catalog.vectors(1)
        assert chunk_ids.tolist() == [1, 1, 2, 2, 4, 4]
        assert chunk_ids.dtype == np.int64
        assert vectors.dtype == np.float32
        np.testing.assert_array_equal(vectors, np.concatenate([window(0, 2), window(1, 2), window(0, 2)]))
        with pytest.raises(UnknownRow):
            catalog.vectors(9)


def test_the_version_changes_with_every_publish_and_delete_of_its_own_collection(tmp_path: Path) -> None:
    with open_catalog(tmp_path) as catalog:
        catalog.ensure_collection("other", "embedding-1", 4, 512)
        seen = [catalog.vectors_version(1)]
        for change in (
            lambda: catalog.publish_document(new_document("a")),
            lambda: catalog.publish_document(new_document("b")),
            lambda: catalog.begin_delete("id-a"),
            lambda: catalog.detach_source(1, "/folder/b.txt"),
        ):
            change()
            seen.append(catalog.vectors_version(1))
        assert len(set(seen)) == len(seen)
        assert catalog.vectors_version(2) == 0
        with pytest.raises(UnknownRow):
            catalog.vectors_version(9)


@pytest.mark.parametrize("windows", [np.zeros((0, 4)), np.zeros((1, 3)), np.zeros(4), np.full((1, 4), np.nan)])
def test_vectors_of_another_shape_are_refused(tmp_path: Path, windows: np.ndarray[tuple[int, ...], np.dtype]) -> None:
    document = new_document("a")
    chunk = replace(document.chunks[0], windows=windows.astype(np.float32))
    with open_catalog(tmp_path) as catalog, pytest.raises(StorageError, match="rows of 4 finite numbers"):
        catalog.publish_document(replace(document, chunks=(chunk,)))


def test_token_ids_come_back_equal(tmp_path: Path) -> None:
    with open_catalog(tmp_path) as catalog:
        catalog.publish_document(new_document("a", ["x", "y"]))
        catalog.keep_token_ids("t1", {1: [5, 6, 7], 2: np.array([], dtype=np.int64), 99: [1]})
        catalog.keep_token_ids("t2", {1: [8]})
        catalog.keep_token_ids("t2", {1: [9, 2**31 - 1]})
        found = catalog.token_ids([1, 2, 99], "t1")
        assert {chunk_id: ids.tolist() for chunk_id, ids in found.items()} == {1: [5, 6, 7], 2: []}
        assert found[1].dtype == np.int32
        assert catalog.token_ids([1], "t2")[1].tolist() == [9, 2**31 - 1]
        with pytest.raises(StorageError):
            catalog.keep_token_ids("t1", {1: [2**31]})
        assert catalog.token_ids([1], "t1")[1].tolist() == [5, 6, 7]


def test_more_ids_than_one_statement_takes(tmp_path: Path) -> None:
    with open_catalog(tmp_path) as catalog:
        catalog.publish_document(new_document("a", [f"w{n}" for n in range(1200)]))
        ids = list(range(1200, 0, -1))
        assert [chunk.id for chunk in catalog.chunks(ids)] == ids
        catalog.keep_token_ids("t", {chunk_id: [chunk_id] for chunk_id in ids})
        assert len(catalog.token_ids(ids, "t")) == 1200


def test_counts_add_up(tmp_path: Path) -> None:
    with open_catalog(tmp_path) as catalog:
        assert catalog.counters() == {}
        catalog.count("blocks_damaged")
        catalog.count("blocks_damaged", 2)
        catalog.count("asked")
        assert catalog.counters() == {"asked": 1, "blocks_damaged": 3}
