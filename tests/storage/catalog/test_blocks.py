"""Blocks: publishing, sharing between documents, deleting, and what is still to be computed."""

from dataclasses import replace
from pathlib import Path

import pytest

from storage.catalog import BlockTotals
from storage.errors import StorageError, UnknownRow
from tests.storage.catalog.builders import new_block, new_document, open_catalog, with_policy


def test_a_block_reads_back(tmp_path: Path) -> None:
    with open_catalog(tmp_path) as catalog:
        catalog.publish_document(new_document("a"))
        assert catalog.publish_block(new_block("k"), [1]) is None
        assert catalog.block("k") == new_block("k")
        assert catalog.block("other") is None
        assert catalog.blocks(["k", "other"]) == {"k": new_block("k")}
        assert catalog.all_blocks() == [new_block("k")]
        assert catalog.block_totals() == BlockTotals(blocks=1, bytes=4096, tokens=10)


def test_a_newer_generation_replaces_an_older_one(tmp_path: Path) -> None:
    with open_catalog(tmp_path) as catalog:
        catalog.publish_document(new_document("a"))
        catalog.publish_block(new_block("k", generation=1), [1])
        assert catalog.publish_block(new_block("k", generation=1), [1]) is None
        assert catalog.publish_block(new_block("k", generation=2), [1]) == "k.int8.1.safetensors"
        assert catalog.publish_block(new_block("k", generation=1), [1]) == "k.int8.1.safetensors"
        found = catalog.block("k")
        assert found is not None
        assert found.generation == 2
        assert len(catalog.all_blocks()) == 1


def test_a_file_being_deleted_is_not_published(tmp_path: Path) -> None:
    with open_catalog(tmp_path) as catalog:
        catalog.publish_document(new_document("a"))
        catalog.publish_block(new_block("k"), [1])
        catalog.begin_block_delete(["k"])
        assert catalog.block("k") is None
        assert [row.state for row in catalog.deleting_blocks()] == ["deleting"]
        with pytest.raises(StorageError, match="newer generation"):
            catalog.publish_block(new_block("k"), [1])
        assert catalog.publish_block(new_block("k", generation=1), [1]) == new_block("k").file
        catalog.finish_block_delete(["k"])
        assert catalog.block("k") == new_block("k", generation=1)


def test_two_keys_never_name_one_file(tmp_path: Path) -> None:
    with open_catalog(tmp_path) as catalog:
        catalog.publish_document(new_document("a"))
        catalog.publish_block(new_block("k"), [1])
        for bad in (
            replace(new_block("other"), file=new_block("k").file),
            replace(new_block("x"), file="../catalog.db"),
            replace(new_block("x"), tokens=0),
            replace(new_block("x"), kind="both"),
            replace(new_block("x"), state="deleting"),
        ):
            with pytest.raises(StorageError):
                catalog.publish_block(bad, [1])
        assert [row.key for row in catalog.all_blocks()] == ["k"]


def test_a_shared_block_stays_for_the_other_document(tmp_path: Path) -> None:
    with open_catalog(tmp_path) as catalog:
        catalog.publish_document(new_document("a"))
        catalog.publish_document(new_document("b"))
        catalog.publish_block(new_block("shared"), [1])
        catalog.link_block("shared", [2])
        catalog.publish_block(new_block("own"), [1])
        assert [row.key for row in catalog.blocks_only_of("id-a")] == ["own"]
        catalog.begin_delete("id-a")
        assert catalog.block("shared") is not None
        assert catalog.block("own") is None
        assert [row.key for row in catalog.blocks_only_of("id-a")] == ["own"]
        catalog.finish_block_delete(["own"])
        catalog.finish_delete("id-a")
        assert [row.key for row in catalog.blocks_only_of("id-b")] == ["shared"]
        assert catalog.unused_blocks() == []


def test_a_block_of_a_deleted_chunk_is_not_published(tmp_path: Path) -> None:
    with open_catalog(tmp_path) as catalog:
        catalog.ensure_collection("other", "embedding-1", 4, 512)
        catalog.publish_document(new_document("a"))
        catalog.publish_document(new_document("elsewhere", collection_id=2))
        catalog.begin_delete("id-a")
        for chunk_ids in ([1], [2], [99], []):
            with pytest.raises(UnknownRow, match="remove its file"):
                catalog.publish_block(new_block("k"), chunk_ids)
        assert catalog.all_blocks() == []
        with pytest.raises(UnknownRow):
            catalog.link_block("k", [1])


def test_a_replaced_document_leaves_unused_blocks_in_sight(tmp_path: Path) -> None:
    with open_catalog(tmp_path) as catalog:
        catalog.publish_document(new_document("a"))
        catalog.publish_block(new_block("k"), [1])
        catalog.publish_document(new_document("a", ["cut otherwise"]))
        assert [row.key for row in catalog.unused_blocks()] == ["k"]
        catalog.link_block("k", [chunk.id for chunk in catalog.chunks_of("id-a")])
        assert catalog.unused_blocks() == []


def test_what_is_still_to_be_computed(tmp_path: Path) -> None:
    with open_catalog(tmp_path) as catalog:
        catalog.publish_document(new_document("a", ["x", "y", "z"]))
        catalog.publish_document(with_policy(new_document("idle"), "idle"))
        catalog.publish_document(with_policy(new_document("off"), "off"))
        catalog.publish_block(new_block("k"), [2])

        def missing(*policies: str, limit: int = 10, after: int = 0, fingerprint: str = "model-1") -> list[int]:
            rows = catalog.chunks_without_block(fingerprint, "self", "head", policies, limit, after)
            return [row.id for row in rows]

        assert missing("now") == [1, 3]
        assert missing("now", "idle") == [1, 3, 4]
        assert missing("now", "idle", "off", after=3) == [4, 5]
        assert missing("now", limit=1) == [1]
        assert missing("now", fingerprint="model-2") == [1, 2, 3]
        assert missing() == []
        assert catalog.chunks_without_block("model-1", "cross", "head", ("now",), 10)[1].id == 2
        catalog.begin_block_delete(["k"])
        assert missing("now") == [1, 2, 3]
