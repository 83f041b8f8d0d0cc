"""Which context serves a chunk where: the exact prefix first, then neighbours, then the head."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from appliance.block_source import WantedBlock
from appliance.service import Appliance
from appliance.serving_contexts import exact_first, serving_contexts
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
    assert serving_contexts(blocks) == ["near", "near", "near"]
    chosen = exact_first(blocks, "head")
    assert [block.served for block in chosen] == [blocks[0].row, blocks[1].near, blocks[2].near]
    assert serving_contexts(chosen) == ["exact", "near", "near"]
    assert exact_first(blocks, "alone") == blocks
    assert exact_first([], "head") == []
    assert serving_contexts([]) == []


def test_a_chunk_without_neighbours_or_without_a_block(blocks: list[WantedBlock]) -> None:
    plain, absent = replace(blocks[1], near=None), replace(blocks[2], row=None, near=None)
    assert serving_contexts([plain, plain, absent]) == ["exact", "head", "absent"]
    assert serving_contexts([absent]) == ["absent"]
    assert plain.row is not None
    alone = replace(plain, row=replace(plain.row, context="alone"))
    assert serving_contexts([alone, alone]) == ["alone", "alone"]


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
        assert serving_contexts(found[::-1]) == ["exact", "head"][:count]
        assert source.settle() == []
        closeness.append(float(torch.dist(execution.logits.float(), full.logits.float())))
    assert closeness[0] < closeness[1] / 2, closeness
