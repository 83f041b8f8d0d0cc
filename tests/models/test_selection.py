"""Issue 4, item 11: what is computed again equals a pass of its own, for every architecture and rotary kind."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch

from models.errors import StrategyRefused
from models.executor import ComputedSource, Execution, Executor
from models.forward import contiguous_rows, next_token_logits, run_rows
from models.placing import choose_placers
from models.prompt import Prompt
from models.reader import ChunkReader
from models.selection import SELECTS, ChunkFacts, SpreadLayers
from models.strategies import STRATEGIES, Plan, SelectingStrategy, StrategyOptions, find_strategy
from tests.models.conftest import load, sample_prompt

TOLERANCE = 1e-4
SELECTING = [name for name, kind in STRATEGIES.items() if issubclass(kind, SelectingStrategy)]
WAYS = [(name, "spread") for name in SELECTING if name != "fusion"] + [("fusion", select) for select in SELECTS]
each_way = pytest.mark.parametrize(("name", "select"), WAYS)


def masses(prompt: Prompt) -> tuple[ChunkFacts, ...]:
    """A record for every chunk but the second."""
    drawn = np.random.default_rng(3)
    return tuple(
        ChunkFacts(outside_mass=None if at == 1 else drawn.random(len(chunk))) for at, chunk in enumerate(prompt.chunks)
    )


def plan_of(prompt: Prompt, name: str, select: str, ratio: float) -> Plan:
    return find_strategy(name, StrategyOptions(ratio, select)).plan(prompt, masses(prompt))


def carried_out(executor: Executor, reader: ChunkReader, prompt: Prompt, plan: Plan) -> Execution:
    return executor.execute(prompt, plan, ComputedSource(reader, prompt.chunks))


def kv(executor: Executor, tokens: int) -> tuple[torch.Tensor, torch.Tensor]:
    return executor.arena.keys[:, :, :tokens].clone(), executor.arena.values[:, :, :tokens].clone()


def close(found: torch.Tensor, expected: torch.Tensor) -> None:
    assert float((found - expected).abs().max()) < TOLERANCE


def test_everything_computed_again_is_full_and_nothing_is_reuse(tiny_folder: Path) -> None:
    model = load(tiny_folder)
    prompt = sample_prompt(model, 3)
    reader = ChunkReader(model, prompt.head, "head", "f32")
    executor = Executor(reader, choose_placers("auto"))
    try:
        full = carried_out(executor, reader, prompt, find_strategy("full").plan(prompt))
        keys, values = kv(executor, prompt.tokens)
        for name, select in WAYS:
            done = carried_out(executor, reader, prompt, plan_of(prompt, name, select, 1.0))
            close(done.logits, full.logits)
            for found, expected in zip(kv(executor, prompt.tokens), (keys, values), strict=True):
                close(found, expected)
            assert done.tokens_reused == len(prompt.head)
        reuse = carried_out(executor, reader, prompt, find_strategy("reuse").plan(prompt))
        assert float((reuse.logits - full.logits).abs().max()) > 100 * TOLERANCE
        for name, select in WAYS:
            close(carried_out(executor, reader, prompt, plan_of(prompt, name, select, 0.0)).logits, reuse.logits)
    finally:
        executor.close()


@each_way
def test_rows_see_their_own_past_and_nothing_after(llama_folder: Path, name: str, select: str) -> None:
    """One row at a time, in order, is what masking by true position means."""
    model = load(llama_folder)
    prompt = sample_prompt(model, 4)
    reader = ChunkReader(model, prompt.head, "head", "f32")
    executor = Executor(reader, choose_placers("auto"))
    try:
        carried_out(executor, reader, prompt, find_strategy("reuse").plan(prompt))
        before = kv(executor, prompt.tokens)
        done = carried_out(executor, reader, prompt, plan_of(prompt, name, select, 0.3))
        after = kv(executor, prompt.tokens)
        end, ids = prompt.tokens - len(prompt.tail), prompt.ids()
        # The first layer sees no context, so it is a deeper one that shows what was computed again.
        changed = (after[0][-1] - before[0][-1]).abs().amax(dim=(0, 2)) > 1e-7
        positions = np.flatnonzero(changed.numpy())
        chosen = positions[positions < end]
        budget = math.ceil(0.3 * sum(map(len, prompt.chunks)))
        assert 0.5 * budget <= len(chosen) <= budget
        if name == "blend":
            return  # its first layers are fresh for every token; test_everything_computed_again covers it
        executor.arena.keys[:, :, : prompt.tokens], executor.arena.values[:, :, : prompt.tokens] = before
        for position in [*chosen, *range(end, prompt.tokens)]:
            rows = contiguous_rows(int(position), 1, model.device)
            hidden = run_rows(model, executor.arena, ids[position : position + 1], rows, int(position) + 1)
        close(next_token_logits(model, hidden), done.logits)
    finally:
        executor.close()


@each_way
def test_the_budget_is_kept_and_exact_chunks_are_left_alone(llama_folder: Path, name: str, select: str) -> None:
    model = load(llama_folder)
    prompt = sample_prompt(model, 4)
    reader = ChunkReader(model, prompt.head, "head", "f32")
    executor = Executor(reader, choose_placers("auto"))
    try:
        chunk_tokens = sum(map(len, prompt.chunks))
        for ratio in (0.01, 0.15, 0.5):
            plan = find_strategy(name, StrategyOptions(ratio, select)).plan(
                prompt, [ChunkFacts(exact=True), *masses(prompt)[1:]]
            )
            done = carried_out(executor, reader, prompt, plan)
            assert done.tokens_recomputed == math.ceil(ratio * chunk_tokens)
            where = slice(len(prompt.head), len(prompt.head) + len(prompt.chunks[0]))
            keys = executor.arena.keys[-1, :, where].clone()
            carried_out(executor, reader, prompt, find_strategy("reuse").plan(prompt))
            assert torch.equal(executor.arena.keys[-1, :, where], keys)
    finally:
        executor.close()


def test_no_chunks_at_all(llama_folder: Path) -> None:
    model = load(llama_folder)
    prompt = sample_prompt(model, 0)
    reader = ChunkReader(model, prompt.head, "head", "f32")
    executor = Executor(reader, choose_placers("auto"))
    try:
        full = carried_out(executor, reader, prompt, find_strategy("full").plan(prompt))
        for name, select in WAYS:
            close(carried_out(executor, reader, prompt, plan_of(prompt, name, select, 0.15)).logits, full.logits)
    finally:
        executor.close()


def test_a_single_exact_chunk_costs_no_selection(llama_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = load(llama_folder)
    prompt = sample_prompt(model, 1)
    reader = ChunkReader(model, prompt.head, "head", "f32")
    executor = Executor(reader, choose_placers("auto"))
    asked: list[str] = []
    monkeypatch.setattr(SpreadLayers, "prepare", lambda *_: asked.append("prepared"))
    try:
        plan = find_strategy("fusion").plan(prompt, [ChunkFacts(exact=True)])
        done = carried_out(executor, reader, prompt, plan)
        close(done.logits, carried_out(executor, reader, prompt, find_strategy("full").plan(prompt)).logits)
        assert (done.tokens_recomputed, asked) == (0, [])
        carried_out(executor, reader, prompt, find_strategy("fusion", StrategyOptions(0.0)).plan(prompt))
        assert asked == []
    finally:
        executor.close()


@pytest.mark.parametrize("ratio", [-0.1, 1.01, math.nan])
def test_a_ratio_outside_is_refused(ratio: float) -> None:
    with pytest.raises(StrategyRefused, match="choose 0 to 1"):
        StrategyOptions(ratio)


def test_an_unknown_selection_is_refused() -> None:
    with pytest.raises(StrategyRefused, match="'guess' is unknown: choose one of paper, last, spread"):
        StrategyOptions(select="guess")
