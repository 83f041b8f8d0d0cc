"""Blocks that attended to neighbours: listed, served only whole and in scope, gone with any of them at once."""

import sqlite3
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from storage.catalog import BlockRow, Catalog, NearFacts
from storage.contexts import is_near, near_context
from storage.errors import CatalogDamaged, StorageError, UnknownRow
from storage.home import Home
from tests.storage.catalog.builders import new_block, new_document, open_catalog, with_policy

TOKENS = 10


def near_row(key: str, *neighbour_keys: str, generation: int = 0) -> BlockRow:
    return replace(new_block(key, generation=generation), context=near_context(neighbour_keys))


def facts(base_key: str, *neighbour_ids: int, seed: int = 0) -> NearFacts:
    mass = np.random.default_rng(seed).random((2, TOKENS), dtype=np.float32)
    return NearFacts(base_key, neighbour_ids, mass)


def filled(folder: Path) -> Catalog:
    """Documents a, b and c of one chunk each (1, 2, 3) with their blocks; chunk 1 was read behind 2 and 3."""
    catalog = open_catalog(folder)
    for number, name in enumerate("abc", 1):
        catalog.publish_document(new_document(name))
        catalog.publish_block(new_block(f"base-{name}"), [number])
    catalog.publish_block(near_row("near-a", "base-b", "base-c"), [1], facts("base-a", 2, 3))
    return catalog


def servable(catalog: Catalog, **scope: set[str]) -> dict[int, str]:
    return {chunk: row.key for chunk, row in catalog.near_blocks("model-1", [1, 2, 3], **scope).items()}


def test_contexts_name_the_neighbours_and_their_order() -> None:
    names = {near_context(keys) for keys in (["a"], ["a", "b"], ["b", "a"], ["ab"], ["a", "b", "c"])}
    assert len(names) == 5
    assert all(is_near(name) for name in names)
    assert not is_near("head")
    with pytest.raises(ValueError, match="head"):
        near_context([])


def test_what_was_published_reads_back(tmp_path: Path) -> None:
    with filled(tmp_path) as catalog:
        assert servable(catalog) == {1: "near-a"}
        assert catalog.neighbours_of("near-a") == [2, 3]
        assert catalog.near_contexts(1, "model-1") == {1: {near_context(["base-b", "base-c"]): "near-a"}}
        assert catalog.near_blocks("model-2", [1]) == {}
        expected = facts("base-a", 2, 3).outside_mass
        for row, alone in enumerate((False, True)):
            found = catalog.craft_scores(["base-a", "base-b"], alone)
            assert list(found) == ["base-a"]
            assert np.array_equal(found["base-a"], expected[row])
        assert catalog.near_progress("model-1", "head") == (1, 3)
        assert catalog.near_progress("model-2", "head") == (0, 0)
        catalog.set_kv("id-c", "off")
        assert catalog.near_progress("model-1", "head") == (1, 2)
        catalog.set_kv("id-b", "off")  # a chunk alone has no neighbours
        assert catalog.near_progress("model-1", "head") == (1, 0)


def test_other_sums_do_not_count_it_twice(tmp_path: Path) -> None:
    with filled(tmp_path) as catalog:
        assert catalog.document_kv("id-a").blocks == 1
        assert catalog.block_files_of("id-a") == {1: [new_block("base-a").file]}
        assert catalog.block_totals().blocks == 4  # the disk budget counts every file
        catalog.record_uses([[1]])
        assert [row.key for row in catalog.ranked_blocks()] == ["base-a", "near-a", "base-b", "base-c"]
        assert "near-a" not in {row.key for row in catalog.ranked_blocks("model-1", "self", "head")}
        catalog.begin_block_delete(["base-a"])
        catalog.finish_block_delete(["base-a"])
        assert catalog.hottest(1)[0].codec is None
        assert catalog.chunks_without_block("model-1", "self", "head", ("now",), 9)[0].id == 1


Removal = Callable[[Catalog], object]


def forget_path(catalog: Catalog) -> None:
    catalog.detach_source(1, "/folder/c.txt")


def take_path(catalog: Catalog) -> None:
    catalog.publish_document(new_document("other", path="/folder/c.txt"))


@pytest.mark.parametrize(
    "removal",
    [lambda catalog: catalog.begin_delete("id-c"), forget_path, take_path],
    ids=["deleted", "gone", "changed"],
)
def test_it_goes_with_a_neighbour_in_the_same_transaction(tmp_path: Path, removal: Removal) -> None:
    with filled(tmp_path) as catalog:
        statements: list[str] = []
        with catalog._connection.read() as connection:
            connection.set_trace_callback(statements.append)
        removal(catalog)
        commits = [index for index, line in enumerate(statements) if line == "COMMIT"]
        retiring = [index for index, line in enumerate(statements) if "block_neighbours" in line]
        hiding = [index for index, line in enumerate(statements) if "UPDATE documents SET state = 'deleting'" in line]
        assert len(commits) == 1
        assert max(*retiring, *hiding) < commits[0]
        assert servable(catalog) == {}
        assert catalog.craft_scores(["base-a"]) == {}
        assert catalog.block("base-a") is not None
        assert {row.key for row in catalog.deleting_blocks()} == {"near-a", "base-c"}
        assert {row.key for row in catalog.blocks_only_of("id-c")} == {"near-a", "base-c"}
        catalog.finish_block_delete(["near-a", "base-c"])
        catalog.finish_delete("id-c")
        assert catalog.faults() == []


def test_it_goes_when_a_neighbour_is_cut_anew(tmp_path: Path) -> None:
    """The same document again (its file was lost): its chunks have other numbers, and none is at the old ones."""
    with filled(tmp_path) as catalog:
        catalog.publish_document(new_document("b", ["cut", "otherwise"]))
        assert servable(catalog) == {}
        assert [row.key for row in catalog.deleting_blocks()] == ["near-a"]


def test_it_goes_with_its_own_document(tmp_path: Path) -> None:
    with filled(tmp_path) as catalog:
        assert {row.key for row in catalog.blocks_only_of("id-a")} == {"base-a", "near-a"}
        catalog.begin_delete("id-a")
        assert {row.key for row in catalog.deleting_blocks()} == {"base-a", "near-a"}


def test_it_is_not_served_where_a_neighbour_is_out_of_scope(tmp_path: Path) -> None:
    with filled(tmp_path) as catalog:
        assert servable(catalog, documents={"id-a", "id-b", "id-c"}) == {1: "near-a"}
        assert servable(catalog, documents={"id-a", "id-b"}) == {}
        catalog.publish_block(near_row("old", "base-b"), [1], facts("base-a", 2))
        catalog.publish_block(near_row("near-a", "base-b", "base-c"), [1], facts("base-a", 2, 3))
        assert servable(catalog) == {1: "near-a"}  # the latest
        assert servable(catalog, documents={"id-b"}) == {1: "old"}


def test_a_list_that_lost_a_row_is_never_served(tmp_path: Path) -> None:
    with filled(tmp_path) as catalog, sqlite3.connect(tmp_path / "catalog.db") as other:
        other.execute("DELETE FROM block_neighbours WHERE rank = 1")
        other.commit()
        assert servable(catalog) == {}
        assert catalog.near_contexts(1, "model-1") == {}
        assert catalog.near_progress("model-1", "head")[0] == 0
    other.close()


def test_it_is_published_with_its_list_or_not_at_all(tmp_path: Path) -> None:
    with filled(tmp_path) as catalog:
        before = catalog.all_blocks()
        row = near_row("near-b", "base-a")
        wrong_scores = replace(facts("base-b", 1), outside_mass=np.zeros((2, 3), np.float32))
        not_finite = replace(facts("base-b", 1), outside_mass=np.full((2, TOKENS), np.nan, np.float32))
        for refused, near in (
            (row, None),
            (new_block("k"), facts("base-b", 1)),
            (row, wrong_scores),
            (row, not_finite),
        ):
            with pytest.raises(StorageError):
                catalog.publish_block(refused, [2], near)
        catalog.ensure_collection("elsewhere", "embedding-1", 4, 512)
        catalog.publish_document(new_document("elsewhere", collection_id=2))
        catalog.begin_delete("id-c")
        for neighbour in (3, 4, 99):
            with pytest.raises(UnknownRow, match="deleted"):
                catalog.publish_block(row, [2], facts("base-b", 1, neighbour))
        assert [row.key for row in catalog.all_blocks()] == [row.key for row in before]
        assert catalog.neighbours_of("near-b") == []


def test_a_newer_block_takes_the_older_ones_place(tmp_path: Path) -> None:
    with filled(tmp_path) as catalog:
        catalog.publish_document(with_policy(new_document("d"), "idle"))
        catalog.link_block("near-a", [4])  # a chunk of the same text
        catalog.publish_block(near_row("newer", "base-c"), [1], facts("base-a", 3, seed=1))
        assert catalog.supersede_near(1, "newer") == []
        assert servable(catalog) == {1: "newer"}
        assert catalog.near_blocks("model-1", [4])[4].key == "near-a"
        assert np.array_equal(catalog.craft_scores(["base-a"])["base-a"], facts("base-a", seed=1).outside_mass[0])
        catalog.publish_block(near_row("newer", "base-c"), [4], facts("base-a", 3, seed=1))
        assert [row.key for row in catalog.supersede_near(4, "newer")] == ["near-a"]
        assert [row.key for row in catalog.deleting_blocks()] == ["near-a"]
        assert catalog.supersede_near(4, "newer") == []


def test_scores_of_a_wrong_length_are_damage(tmp_path: Path) -> None:
    with filled(tmp_path) as catalog, sqlite3.connect(tmp_path / "catalog.db") as other:
        other.execute("UPDATE near_blocks SET outside_mass = x'0000000000000000'")
        other.commit()
        with pytest.raises(CatalogDamaged, match="wrong length"):
            catalog.craft_scores(["base-a"])
    other.close()


def test_an_older_catalog_gets_its_tables(tmp_path: Path) -> None:
    with open_catalog(tmp_path) as catalog:
        catalog.publish_document(new_document("a"))
        catalog.publish_block(new_block("base-a"), [1])
    with sqlite3.connect(tmp_path / "catalog.db") as old:
        old.execute("DROP TABLE block_neighbours")
        old.execute("DROP TABLE near_blocks")
        old.execute("DELETE FROM _sqlite_migrations WHERE name = 'neighbours'")
    old.close()
    with Catalog.open(Home(tmp_path), read_only=True) as reader:  # a question or `status`, before any writer came
        assert (servable(reader), reader.craft_scores(["base-a"])) == ({}, {})
        assert reader.near_progress("model-1", "head") == (0, 0)
    with Catalog.open(Home(tmp_path)) as catalog:
        catalog.publish_document(new_document("b"))
        catalog.publish_block(near_row("near-a", "base-b"), [1], facts("base-a", 2))
        assert servable(catalog) == {1: "near-a"}
        assert catalog.faults() == []
