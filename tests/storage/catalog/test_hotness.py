"""Hotness: decay by questions, batches, ranking of blocks, deletion, and the step from an older catalog."""

import random
import sqlite3
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from storage.catalog import Catalog, CodecTotals, hotness
from storage.errors import CatalogDamaged
from storage.home import Home
from tests.storage.catalog.builders import new_block, new_document, open_catalog


def scores(catalog: Catalog, count: int = 9) -> dict[int, float]:
    return catalog.chunk_scores(range(1, count + 1))


def test_a_score_halves_in_its_half_life_of_questions(tmp_path: Path) -> None:
    with open_catalog(tmp_path) as catalog:
        catalog.half_life_questions = 10
        catalog.publish_document(new_document("a", ["x", "y", "z"]))
        catalog.record_uses([[1, 2], [2]])
        assert catalog.questions() == 2
        assert scores(catalog) == {1: pytest.approx(2**-0.1), 2: pytest.approx(1 + 2**-0.1)}
        catalog.record_uses([[]] * 10)  # questions about nothing of these
        assert catalog.questions() == 12
        assert scores(catalog) == {1: pytest.approx(2**-1.1), 2: pytest.approx((1 + 2**-0.1) / 2)}


def test_a_chunk_counts_once_a_question(tmp_path: Path) -> None:
    with open_catalog(tmp_path) as catalog:
        catalog.publish_document(new_document("a"))
        catalog.record_uses([[1, 1, 1]])
        assert [(hot.score, hot.uses) for hot in catalog.hottest(5)] == [(1.0, 1)]


def test_batches_make_no_difference(tmp_path: Path) -> None:
    asked = random.Random(3)
    uses = [[asked.randint(1, 9) for _ in range(4)] for _ in range(200)]
    found = []
    for folder, size in (("one", 200), ("many", 7)):
        with open_catalog(tmp_path / folder) as catalog:
            catalog.half_life_questions = 50
            catalog.publish_document(new_document("a", [f"text {n}" for n in range(9)]))
            for first in range(0, len(uses), size):
                catalog.record_uses(uses[first : first + size])
            found.append(scores(catalog))
            assert {hot.chunk_id: hot.uses for hot in catalog.hottest(9)} == {
                chunk: sum(chunk in used for used in uses) for chunk in range(1, 10)
            }
    assert found[0] == pytest.approx(found[1])
    by_hand = {
        chunk: sum(2 ** (-(199 - number) / 50) for number, used in enumerate(uses) if chunk in used)
        for chunk in range(1, 10)
    }
    assert found[0] == pytest.approx(by_hand)


def test_a_batch_is_counted_whole_or_not_at_all(tmp_path: Path) -> None:
    with open_catalog(tmp_path) as catalog:
        catalog.publish_document(new_document("a"))
        with catalog._connection.write() as sqlite:
            sqlite.execute(
                "CREATE TRIGGER refuse BEFORE INSERT ON counters WHEN new.event = 'questions'"
                " BEGIN SELECT raise(ABORT, 'no'); END"
            )
        with pytest.raises(Exception, match="no"):
            catalog.record_uses([[1]])
        assert (catalog.questions(), scores(catalog)) == (0, {})


def test_the_hottest_are_told_with_their_blocks(tmp_path: Path) -> None:
    with open_catalog(tmp_path) as catalog:
        catalog.publish_document(new_document("a", ["x", "y"]))
        catalog.publish_document(new_document("b"))
        catalog.record_uses([[1, 2, 3], [3, 77], [2]])
        catalog.publish_block(replace(new_block("k", generation=2), codec="e4m3"), [2])
        catalog.publish_block(new_block("other", fingerprint="model-2"), [3])
        hot = catalog.hottest(2, "model-1")
        assert [(row.chunk_id, row.title, row.ordinal, row.uses) for row in hot] == [
            (2, "Title of a", 1, 2),
            (3, "Title of b", 0, 2),
        ]
        assert [(row.codec, row.generation, row.size_bytes) for row in hot] == [("e4m3", 2, 4096), (None, None, None)]
        assert catalog.hottest(3)[1].codec == "int8"
        assert [row.chunk_id for row in catalog.hottest(9)] == [2, 3, 1]
        assert catalog.hottest(0) == []


def test_blocks_are_ranked_by_the_sum_over_their_chunks(tmp_path: Path) -> None:
    with open_catalog(tmp_path) as catalog:
        catalog.publish_document(new_document("a", ["v", "w", "x", "y", "z"]))
        for key, chunks in {"cold": [5], "shared": [2, 3], "hot": [1], "none": [4], "tie": [2]}.items():
            catalog.publish_block(new_block(key), chunks)
        catalog.publish_block(new_block("other", fingerprint="model-2"), [1])
        catalog.publish_block(replace(new_block("cross"), kind="cross"), [1])
        catalog.record_uses([[1, 2, 3], [1, 2, 3]])
        found = catalog.ranked_blocks("model-1", "self", "head")
        assert [(row.key, row.chunk_ids) for row in found] == [
            ("shared", (2, 3)),
            ("hot", (1,)),
            ("tie", (2,)),
            ("none", (4,)),
            ("cold", (5,)),
        ]
        assert found[1].score == pytest.approx(1 + 2**-0.001)
        assert [row.score for row in found[3:]] == [0, 0]
        assert {row.key for row in catalog.ranked_blocks()} == {row.key for row in found} | {"other", "cross"}
        catalog.begin_block_delete(["hot"])
        assert "hot" not in {row.key for row in catalog.ranked_blocks()}
        assert catalog.codec_totals() == [CodecTotals("int8", 6, 6 * 4096)]


def test_hotness_goes_with_its_document(tmp_path: Path) -> None:
    with open_catalog(tmp_path) as catalog:
        catalog.publish_document(new_document("a", ["x", "y"]))
        catalog.publish_document(new_document("b"))
        catalog.record_uses([[1, 2, 3]])
        catalog.begin_delete("id-a")
        assert [row.chunk_id for row in catalog.hottest(9)] == [3]
        catalog.record_uses([[1, 3]])  # noted before it was deleted, written afterwards
        catalog.finish_delete("id-a")
        assert catalog.questions() == 2
        assert list(scores(catalog)) == [3]
        with catalog._connection.read() as sqlite:
            assert sqlite.execute("SELECT chunk_id FROM hotness").fetchall() == [(3,)]
        assert catalog.chunk_count() == 1
        catalog.record_uses([[1]])
        assert list(scores(catalog)) == [3]


def test_a_document_deleted_between_two_looks_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with open_catalog(tmp_path) as catalog, Catalog.open(Home(tmp_path), read_only=True) as reader:
        catalog.publish_document(new_document("a", ["x", "y"]))
        catalog.publish_document(new_document("b"))
        catalog.record_uses([[1, 2, 3]])
        look = hotness._described

        def late(*arguments: Any) -> Any:
            catalog.begin_delete("id-a")
            return look(*arguments)

        monkeypatch.setattr(hotness, "_described", late)
        assert [row.chunk_id for row in reader.hottest(9)] == [3]


def test_a_codec_is_refused_once_and_for_as_long_as_the_block_is_here(tmp_path: Path) -> None:
    with open_catalog(tmp_path) as catalog:
        catalog.publish_document(new_document("a"))
        assert not catalog.refuse_codec("k", "e4m3")
        catalog.publish_block(new_block("k"), [1])
        assert catalog.refuse_codec("k", "e4m3")
        assert not catalog.refuse_codec("k", "e4m3")
        catalog.publish_block(new_block("k", generation=1), [1])
        assert catalog.refused_codecs() == {("k", "e4m3")}
        catalog.begin_block_delete(["k"])
        catalog.finish_block_delete(["k"])
        assert catalog.refused_codecs() == set()


def make_older(folder: Path) -> None:
    """A catalog as the version before hotness left it, with a document and a block."""
    with open_catalog(folder) as catalog:
        catalog.publish_document(new_document("a"))
        catalog.publish_block(new_block("k"), [1])
    with sqlite3.connect(folder / "catalog.db") as old:
        old.execute("DROP TABLE hotness")
        old.execute("DROP TABLE refused_codecs")
        old.execute("DELETE FROM _sqlite_migrations WHERE name = 'hotness'")
    old.close()


def test_an_older_catalog_gets_its_tables(tmp_path: Path) -> None:
    make_older(tmp_path)
    with Catalog.open(Home(tmp_path), read_only=True) as reader:  # `status`, before any writer came
        assert reader.hottest(3) == []
        assert [(row.key, row.score) for row in reader.ranked_blocks()] == [("k", 0)]
        assert (reader.chunk_scores([1]), reader.refused_codecs(), reader.questions()) == ({}, set(), 0)
    with Catalog.open(Home(tmp_path)) as catalog:
        assert [row.title for row in catalog.documents()] == ["Title of a"]
        assert catalog.block("k") == new_block("k")
        catalog.record_uses([[1]])
        assert catalog.refuse_codec("k", "e4m3")
    with Catalog.open(Home(tmp_path)) as catalog:
        assert [row.chunk_id for row in catalog.hottest(3)] == [1]
        assert catalog.faults() == []


def test_a_kill_in_the_step_leaves_the_older_catalog(tmp_path: Path) -> None:
    make_older(tmp_path)
    with sqlite3.connect(tmp_path / "catalog.db") as old:
        old.execute("CREATE TABLE refused_codecs (wrong)")  # the second statement of the step fails
    old.close()
    with pytest.raises(CatalogDamaged):
        Catalog.open(Home(tmp_path))
    with sqlite3.connect(tmp_path / "catalog.db") as old:
        assert old.execute("SELECT 1 FROM sqlite_master WHERE name = 'hotness'").fetchone() is None
        old.execute("DROP TABLE refused_codecs")
    old.close()
    with Catalog.open(Home(tmp_path)) as catalog:
        catalog.record_uses([[1]])
        assert scores(catalog) == {1: 1.0}
