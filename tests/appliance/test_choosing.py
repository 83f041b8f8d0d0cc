"""Which context serves a chunk where: the exact prefix first, then neighbours, then the head."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from appliance.block_source import WantedBlock
from appliance.choosing import exact_first
from appliance.service import Appliance
from models.executor import ComputedSource
from models.strategies import find_strategy
from tests.appliance.fixtures import QUESTION
from tests.appliance.neighbourhood import ask, chunk_ids, wanted


@pytest.fixture
def blocks(appliance: Appliance, sample_files: Path) -> list[WantedBlock]:
    """Three chunks with KV. Their blocks behind neighbours are rows alone: nothing here loads them."""
    appliance.ingest([sample_files])
    found = wanted(appliance, chunk_ids(appliance)[:3], near=False)
    return [
        replace(block, near=replace(block.row, key="0" * 64, context="near:0123456789abcdef"))
        for block in found
        if block.row is not None
    ]


def test_behind_the_head_alone_neighbours_are_not_served(blocks: list[WantedBlock]) -> None:
    chosen = exact_first(blocks, "head")
    assert [block.served for block in chosen] == [blocks[0].row, blocks[1].near, blocks[2].near]
    assert exact_first(blocks, "alone") == blocks
    assert exact_first([], "head") == []


@pytest.mark.usefixtures("blocks")
def test_what_is_called_exact_is(appliance: Appliance) -> None:
    """A prompt of one chunk, from its block: as reading it whole, but for the codec; behind another it is not."""
    closeness = []
    for count in (1, 2):
        found = wanted(appliance, chunk_ids(appliance)[:count])  # best first: the prompt has them the other way round
        execution, source = ask(appliance, [], blocks=found)
        prompt = appliance.engine.template.prompt([block.token_ids for block in found], QUESTION)
        reading = ComputedSource(appliance.engine.reader, prompt.chunks)
        full = appliance.engine.executor.execute(prompt, find_strategy("full").plan(prompt), reading)
        assert source.settle() == []
        closeness.append(float(torch.dist(execution.logits.float(), full.logits.float())))
    assert closeness[0] < closeness[1] / 2, closeness
