"""Collections, documents, sources, chunks and their deletion."""

from dataclasses import replace
from pathlib import Path

import pytest

from storage.catalog import Catalog, DocumentRow
from storage.errors import EmbeddingMismatch, StorageError, UnknownRow
from storage.home import Home
from tests.storage.catalog.builders import new_block, new_document, open_catalog


def test_a_collection_keeps_its_embedding_model(tmp_path: Path) -> None:
    with open_catalog(tmp_path) as catalog:
        first = catalog.collection("papers")
        assert catalog.ensure_collection("papers", "embedding-1", 4, 256) == first
        with pytest.raises(EmbeddingMismatch, match="another embedding model"):
            catalog.ensure_collection("papers", "embedding-2", 4, 512)
        with pytest.raises(EmbeddingMismatch):
            catalog.ensure_collection("papers", "embedding-1", 8, 512)
        with pytest.raises(UnknownRow, match="'nothing'"):
            catalog.collection("nothing")
        assert [row.name for row in catalog.collections()] == ["papers"]


def test_a_published_document_reads_back(tmp_path: Path) -> None:
    document = replace(new_document("a", ["first text", "second text"]), flags=("hidden text",), pages=2)
    with open_catalog(tmp_path) as catalog:
        assert catalog.publish_document(document) == []
        row = catalog.document("id-a")
        assert row == DocumentRow(
            *("id-a", 1, "Title of a", "txt", "digest-a", 1000, 2, 2, "now", "ready", ("hidden text",), row.added_at)
        )
        assert row.added_at.endswith("+00:00")
        assert catalog.document_by_digest(1, "digest-a") == row
        assert catalog.document_by_digest(2, "digest-a") is None
        chunks = catalog.chunks_of("id-a")
        assert [(c.ordinal, c.start, c.end, c.text, c.title) for c in chunks] == [
            (0, 0, 100, "first text", "Title of a"),
            (1, 100, 200, "second text", "Title of a"),
        ]
        ids = [chunk.id for chunk in chunks]
        assert [c.id for c in catalog.chunks([ids[1], 999, ids[0]])] == [ids[1], ids[0]]


def test_a_changed_file_replaces_its_document_in_one_step(tmp_path: Path) -> None:
    with open_catalog(tmp_path) as catalog:
        catalog.publish_document(new_document("old", path="/f.txt"))
        before = catalog.vectors_version(1)
        assert catalog.publish_document(new_document("new", path="/f.txt")) == ["id-old"]
        assert [row.id for row in catalog.documents()] == ["id-new"]
        assert [row.id for row in catalog.deleting_documents()] == ["id-old"]
        assert catalog.vectors_version(1) > before
        source = catalog.source(1, "/f.txt")
        assert source is not None
        assert source.document_id == "id-new"


def test_a_document_lives_as_long_as_one_path_holds_it(tmp_path: Path) -> None:
    with open_catalog(tmp_path) as catalog:
        catalog.publish_document(new_document("a", path="/1"))
        assert catalog.attach_source(1, "/2", "id-a", 1000, 8) == []
        assert [source.path for source in catalog.sources_of("id-a")] == ["/1", "/2"]
        assert catalog.publish_document(new_document("b", path="/1")) == []
        assert catalog.detach_source(1, "/2") == ["id-a"]
        assert catalog.detach_source(1, "/2") == []
        with pytest.raises(UnknownRow):
            catalog.attach_source(1, "/3", "id-a", 1, 1)


def test_a_document_is_found_as_a_person_names_it(tmp_path: Path) -> None:
    with open_catalog(tmp_path) as catalog:
        catalog.publish_document(new_document("a", path="/x/same.txt"))
        catalog.publish_document(new_document("b", path="/y/same.txt"))
        catalog.attach_source(1, "/z/a_%.txt", "id-a", 1, 1)
        for text in ("id-a", "/x/same.txt", "a_%.txt", "Title of a"):
            assert catalog.find_document(text).id == "id-a"
        with pytest.raises(UnknownRow, match="means 2 documents"):
            catalog.find_document("same.txt")
        for text in ("ame.txt", "%", "", "a__.txt"):
            with pytest.raises(UnknownRow, match="no document"):
                catalog.find_document(text)
        with pytest.raises(UnknownRow):
            catalog.find_document("id-a", collection_id=2)


def test_a_document_being_deleted_is_out_of_sight(tmp_path: Path) -> None:
    with open_catalog(tmp_path) as catalog:
        catalog.publish_document(new_document("a", ["unicorn"]))
        catalog.publish_block(new_block("k"), [1])
        catalog.keep_token_ids("t", {1: [1, 2]})
        catalog.begin_delete("id-a")
        catalog.begin_delete("id-a")
        assert catalog.documents() == []
        assert catalog.chunks([1]) == catalog.chunks_of("id-a") == []
        assert catalog.search_words(1, "unicorn", 5) == []
        assert catalog.vectors(1)[0].size == 0
        assert catalog.token_ids([1], "t") == {}
        assert catalog.source(1, "/folder/a.txt") is None
        assert catalog.document_by_digest(1, "digest-a") is None
        assert catalog.block("k") is None
        assert [row.key for row in catalog.blocks_only_of("id-a")] == ["k"]
        assert catalog.document("id-a").state == "deleting"


def test_a_ready_document_is_not_finished(tmp_path: Path) -> None:
    with open_catalog(tmp_path) as catalog:
        catalog.publish_document(new_document("a"))
        with pytest.raises(StorageError, match="begin its deletion first"):
            catalog.finish_delete("id-a")
        assert catalog.finish_delete("never there")
        with pytest.raises(UnknownRow):
            catalog.begin_delete("never there")
        assert len(catalog.documents()) == 1


def test_a_document_comes_back_while_it_is_being_deleted(tmp_path: Path) -> None:
    with open_catalog(tmp_path) as catalog:
        catalog.publish_document(new_document("a", ["old words"]))
        catalog.begin_delete("id-a")
        catalog.publish_document(new_document("a", ["fresh words", "more"]))
        assert catalog.deleting_documents() == []
        assert [chunk.text for chunk in catalog.chunks_of("id-a")] == ["fresh words", "more"]
        assert [hit[0] for hit in catalog.search_words(1, "fresh", 5)] == [catalog.chunks_of("id-a")[0].id]
        assert catalog.search_words(1, "old", 5) == []


def test_publishing_again_keeps_the_other_paths(tmp_path: Path) -> None:
    with open_catalog(tmp_path) as catalog:
        catalog.publish_document(new_document("a"))
        catalog.attach_source(1, "/other", "id-a", 1, 1)
        catalog.publish_document(new_document("a"))
        assert len(catalog.sources_of("id-a")) == 2
        with pytest.raises(StorageError, match="taken by another content"):
            catalog.publish_document(replace(new_document("a"), digest="other"))


def test_chunk_ids_are_never_used_again(tmp_path: Path) -> None:
    catalog = open_catalog(tmp_path)
    catalog.publish_document(new_document("a", ["x", "y"]))
    used = {chunk.id for chunk in catalog.chunks_of("id-a")}
    catalog.begin_delete("id-a")
    catalog.finish_delete("id-a")
    catalog.close()
    with Catalog.open(Home(tmp_path)) as again:
        again.publish_document(new_document("b", ["x", "y"]))
        assert min(chunk.id for chunk in again.chunks_of("id-b")) > max(used)


def test_a_refused_document_leaves_nothing(tmp_path: Path) -> None:
    good = new_document("a", ["one", "two"])
    bad_windows = replace(good.chunks[1], windows=good.chunks[1].windows[:, :3])
    bad_span = replace(good.chunks[1], end=good.chunks[1].start)
    with open_catalog(tmp_path) as catalog:
        for chunk in (bad_windows, bad_span):
            with pytest.raises(StorageError):
                catalog.publish_document(replace(good, chunks=(good.chunks[0], chunk)))
        for changed in (replace(good, kv="soon"), replace(good, size_bytes=-1), replace(good, collection_id=9)):
            with pytest.raises(StorageError):
                catalog.publish_document(changed)
        assert catalog.documents() == []
        assert catalog.search_words(1, "one two title", 5) == []
        assert catalog.vectors(1)[0].size == 0
        assert catalog.faults() == []
