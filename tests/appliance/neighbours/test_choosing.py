"""Which neighbours a chunk is read behind."""

from dataclasses import replace
from pathlib import Path

import pytest

from appliance.neighbours import DocumentChooser, NeighbourSettings, NeighbourWork, Place
from appliance.neighbours.plans import NearPlans
from appliance.service import Appliance
from appliance.settings import Settings
from tests.appliance.fixtures import write_samples
from tests.appliance.neighbourhood import check, chunk_ids, near_rows, neighbouring, wanted


def plans_of(appliance: Appliance, settings: NeighbourSettings) -> dict[int, tuple[int, ...]]:
    parts = (appliance.catalog, appliance.engine, appliance.turns, appliance.retriever.index)
    collection = next(row for row in appliance.catalog.collections() if row.name == "default")
    plans = NearPlans(*parts, settings).of(collection)
    return {chunk: plan.neighbour_ids[::-1] for chunk, plan in plans.items()}  # the most similar is placed last


def test_neighbours_are_the_most_similar_of_the_collection(ingested: Appliance, tmp_path: Path) -> None:
    """By the best pair of windows; those of another collection, and of the same text, never."""
    chunks = chunk_ids(ingested)
    other = write_samples(tmp_path / "files") / "pump.txt"
    ingested.ingest([other], collection="another")
    ids, vectors = ingested.catalog.vectors(1)
    found = plans_of(ingested, NeighbourSettings(neighbours=2))
    for chunk in chunks:
        cosines = {
            near: float((vectors[ids == chunk] @ vectors[ids == near].T).max()) for near in chunks if near != chunk
        }
        expected = sorted(cosines, key=lambda near: (-round(cosines[near], 5), near))[:2]
        assert [round(cosines[near], 5) for near in found[chunk]] == [round(cosines[near], 5) for near in expected]
    same = tmp_path / "files" / "copy" / "pump.txt"
    same.parent.mkdir()
    same.write_text(other.read_text() + "\n\nAnd a last word that makes it another document.\n")
    ingested.ingest([same])
    found = plans_of(ingested, NeighbourSettings(neighbours=8))
    keys = {each.chunk.id: each.key for each in wanted(ingested, list(found))}
    assert len(set(keys.values())) < len(keys)
    for chunk, near in found.items():
        own = [keys[chunk], *(keys[each] for each in near)]
        assert len(set(own)) == len(own)


def test_the_least_similar_are_left_out_where_they_do_not_fit(ingested: Appliance) -> None:
    many = plans_of(ingested, NeighbourSettings(neighbours=8))
    room = max(len(each.token_ids) for each in wanted(ingested, list(many)))
    few = plans_of(ingested, NeighbourSettings(neighbours=8, tokens=2 * room))
    assert all(few[chunk] == near[: len(few[chunk])] for chunk, near in many.items() if chunk in few)
    assert sum(map(len, few.values())) < sum(map(len, many.values()))
    tokens = {each.chunk.id: len(each.token_ids) for each in wanted(ingested, list(many))}
    window, head = ingested.engine.model.window, ingested.engine.reader.head_tokens
    for chunk, near in many.items():
        assert head + tokens[chunk] + sum(tokens[each] for each in near) <= window
    assert plans_of(ingested, NeighbourSettings(neighbours=8, tokens=1)) == {}


def test_reading_order_may_come_first() -> None:
    places = [Place(10 + ordinal, "d", ordinal, f"k{ordinal}", 5) for ordinal in range(4)]
    order = DocumentChooser().order
    assert list(order(places[1], [90, 12, 91], places)) == [10, 12, 90, 12, 91]
    assert list(order(places[0], [90], places)) == [11, 90]


def test_both_ways_of_choosing_are_carried_out(ingested: Appliance) -> None:
    neighbouring(ingested).run()
    before = {chunk: row.context for chunk, row in near_rows(ingested).items()}
    work = neighbouring(ingested, NeighbourSettings(neighbours=3, chooser="document")).run()
    assert work.read > 0
    after = {chunk: row.context for chunk, row in near_rows(ingested).items()}
    assert sum(before[chunk] != after[chunk] for chunk in before) == work.read
    check(ingested)
    with pytest.raises(ValueError, match="luck"):
        neighbouring(ingested, NeighbourSettings(chooser="luck"))


def test_documents_without_kv_have_no_part_in_it(appliance: Appliance, sample_files: Path) -> None:
    appliance.ingest([sample_files / "pump.txt"])
    appliance.ingest([sample_files / "rules.md"], kv="off")
    off = {chunk.id for chunk in appliance.catalog.chunks_of(appliance.find_document("rules.md"))}
    neighbouring(appliance).run()
    rows = near_rows(appliance)
    assert rows
    assert not off & set(rows)
    assert not off & {near for row in rows.values() for near in appliance.catalog.neighbours_of(row.key)}
    appliance.ingest([sample_files / "rules.md"], kv="idle")
    work = neighbouring(appliance)
    assert not off & {plan.chunk_id for plan in work.pending()}  # their own block is not there yet


def test_it_is_off_where_it_is_switched_off(ingested: Appliance) -> None:
    assert neighbouring(ingested, NeighbourSettings(neighbours=0)).run() == NeighbourWork()
    with pytest.raises(ValueError, match="neighbours is 65"):
        NeighbourSettings(neighbours=65)


def test_other_contexts_have_no_neighbours(settings: Settings, sample_files: Path) -> None:
    with Appliance.open(replace(settings, context="alone")) as appliance:
        appliance.ingest([sample_files])
        assert neighbouring(appliance).run() == NeighbourWork()
