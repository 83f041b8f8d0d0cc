"""Which of a chunk's blocks memory is kept for: the one that `auto` would load."""

import threading
from dataclasses import replace
from pathlib import Path

import pytest

from appliance.budgets import TierBudgets
from appliance.service import Appliance
from appliance.settings import Settings
from storage.contexts import is_near
from tests.appliance.fixtures import QUESTION
from tests.appliance.neighbourhood import chunk_ids, neighbouring


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return replace(settings, budgets=TierBudgets(0.0, 0.0, 0.5, shares=True))


@pytest.mark.parametrize("near", [False, True])
def test_memory_is_for_the_block_that_auto_loads(appliance: Appliance, sample_files: Path, near: bool) -> None:
    appliance.ingest([sample_files])
    assert neighbouring(appliance).run().error is None
    chunks = chunk_ids(appliance)
    for chunk in chunks:  # what was used last is hottest
        appliance.hot.log.record([chunk])
    appliance.hot.log.flush()
    appliance.hot.serve(appliance.engine, near)
    found = appliance.catalog.ranked_blocks(appliance.engine.fingerprint, "self")
    rows = {row.key: row for row in appliance.catalog.all_blocks()}
    for block in found:
        appliance.store.load(rows[block.key]).release()
    kept = [block for block in found if appliance.store.where(rows[block.key]) != "disk"]
    assert len(kept) == len(chunks) // 2
    assert {is_near(block.context) for block in kept} == {near}
    assert {chunk for block in kept for chunk in block.chunk_ids} == set(chunks[-len(kept) :])


def moved(appliance: Appliance) -> dict[str, int]:
    return {name: told["blocks"] for name, told in appliance.store.memory().items() if "blocks" in told}


def fetch(appliance: Appliance, stop: bool = False) -> None:
    """The idle job alone."""
    models = lambda: pytest.fail("no model is needed")  # noqa: E731
    jobs = appliance.hot.idle_jobs(models, models, models)
    event = threading.Event()
    if stop:
        event.set()
    assert jobs[2](event) is None


def test_what_is_hot_is_brought_to_memory_in_idle_time(appliance: Appliance, sample_files: Path) -> None:
    appliance.ingest([sample_files])
    rows = appliance.catalog.all_blocks()
    used = chunk_ids(appliance)[:2]
    fetch(appliance)
    assert moved(appliance)["pageable"] == 0, "nothing was asked for yet"
    appliance.hot.log.record(used)
    appliance.hot.log.flush()
    appliance.hot.place()
    fetch(appliance, stop=True)
    assert moved(appliance)["pageable"] == 0
    fetch(appliance)
    ranked = appliance.catalog.ranked_blocks(appliance.engine.fingerprint, "self")
    hot = {block.key for block in ranked if set(block.chunk_ids) & set(used)}
    assert {row.key for row in rows if appliance.store.where(row) == "pageable"} == hot
    assert not any(appliance.store.lags(row.key) for row in rows if row.key in hot)
    assert appliance.store.leases_out == 0
    answer = appliance.answer(QUESTION, strategy="reuse", top_k=6, max_new_tokens=1)
    assert answer.tiers["pageable"] == len(hot)


def test_a_damaged_block_is_set_aside_and_the_others_come(appliance: Appliance, sample_files: Path) -> None:
    appliance.ingest([sample_files])
    used = chunk_ids(appliance)[:3]
    appliance.hot.log.record(used)
    appliance.hot.log.flush()
    appliance.hot.place()
    ranked = [block for block in appliance.catalog.ranked_blocks() if block.score]
    damaged = next(row for row in appliance.catalog.all_blocks() if row.key == ranked[0].key)
    appliance.store.path(damaged).write_bytes(b"torn")
    fetch(appliance)
    assert moved(appliance)["pageable"] == len(ranked) - 1
    assert appliance.catalog.block(damaged.key) is None
    assert appliance.catalog.counters()["blocks_damaged"] == 1
