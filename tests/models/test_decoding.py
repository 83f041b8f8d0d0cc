"""Decoding several answers in one pass: each as if it were alone, and none touches another's arena."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from models.arena import Arena
from models.decoding import DecodeRow, Greedy, decode_each, decode_rows
from models.executor import ComputedSource, Executor
from models.generation import generate
from models.loading import LanguageModel
from models.placing import choose_placers
from models.prompt import Prompt
from models.reader import ChunkReader
from models.strategies import find_strategy
from tests.models.conftest import load, sample_prompt

STEPS = 12


def prompts(model: LanguageModel) -> list[Prompt]:
    """Of different lengths, one without any chunk."""
    return [sample_prompt(model, chunks) for chunks in (1, 4, 0, 2)]


def arena_of(model: LanguageModel) -> Arena:
    return Arena(model.geometry, model.dtype, model.device, model.window)


def read(model: LanguageModel) -> list[tuple[Greedy, torch.Tensor, Arena, Prompt]]:
    """Every prompt read into an arena of its own, with the logits after it."""
    found = []
    for prompt in prompts(model):
        reader = ChunkReader(model, prompt.head, "head", "f32")
        executor = Executor(reader, choose_placers("plain"))
        arena = arena_of(model)
        plan = find_strategy("full").plan(prompt)
        logits = executor.execute(prompt, plan, ComputedSource(reader, prompt.chunks), STEPS, arena).logits
        executor.close()
        assert executor.arena.capacity == 0, "the arena that was given is used, and no other"
        found.append((Greedy(model, arena, prompt.tokens, STEPS), logits, arena, prompt))
    return found


def test_batched_equals_single(tiny_folder: Path) -> None:
    model = replace(load(tiny_folder), stop_ids=frozenset())
    together, alone = read(model), read(model)
    for greedy, logits, _, _ in [*together, *alone]:
        greedy.take(logits)
    for _ in range(STEPS - 1):
        batched = decode_rows(model, [greedy.row for greedy, *_ in together])
        single = decode_each(model, [greedy.row for greedy, *_ in alone])
        torch.testing.assert_close(batched, single, atol=1e-4, rtol=0)
        for (first, *_), (second, *_), its, own in zip(together, alone, batched, single, strict=True):
            assert first.take(its) == second.take(own)
    for (_, _, ours, prompt), (_, _, theirs, _) in zip(together, alone, strict=True):
        end = prompt.tokens + STEPS - 1
        torch.testing.assert_close(ours.keys[:, :, :end], theirs.keys[:, :, :end], atol=1e-4, rtol=0)
        assert torch.equal(ours.keys[:, :, end:], theirs.keys[:, :, end:]), "nothing behind the rows is written"


@pytest.fixture(scope="module")
def llama(llama_folder: Path) -> LanguageModel:
    return replace(load(llama_folder), stop_ids=frozenset())


@pytest.mark.parametrize("stops", [frozenset[int](), frozenset({100, 101, 102, 103, 104})])
def test_ends_as_generate_does(llama: LanguageModel, stops: frozenset[int]) -> None:
    """Token for token: after as many as were asked for, at a stop token, at a repetition."""
    model = replace(llama, stop_ids=stops)
    prompt = sample_prompt(model, 2)
    reader = ChunkReader(model, prompt.head, "head", "f32")
    executor = Executor(reader, choose_placers("plain"))
    plan, source = find_strategy("full").plan(prompt), ComputedSource(reader, prompt.chunks)
    for most in (1, 2, 60):
        logits = executor.execute(prompt, plan, source, most).logits
        expected = list(generate(executor, logits, prompt.tokens, most))
        logits = executor.execute(prompt, plan, source, most).logits
        greedy, told = Greedy(model, executor.arena, prompt.tokens, most), []
        while True:
            token = greedy.take(logits)
            if token is not None:
                told.append(token)
            if greedy.ended:
                break
            logits = decode_rows(model, [greedy.row])[0]
        assert told == expected
    executor.close()


def test_two_rows_of_one_arena_are_refused(llama: LanguageModel) -> None:
    arena = arena_of(llama)
    arena.reserve(8)
    with pytest.raises(ValueError, match="each its own"):
        decode_rows(llama, [DecodeRow(1, 3, arena), DecodeRow(2, 4, arena)])
