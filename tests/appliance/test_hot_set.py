"""Which of a chunk's blocks memory is kept for: the one that `auto` would load."""

from dataclasses import replace
from pathlib import Path

import pytest

from appliance.budgets import TierBudgets
from appliance.service import Appliance
from appliance.settings import Settings
from storage.contexts import is_near
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
