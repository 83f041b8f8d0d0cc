"""Scoring along `full`'s answer: the same KV scores zero, worse KV scores worse, and the arithmetic is right."""

import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from models.errors import PromptTooLong
from models.executor import ComputedSource, Executor
from models.forward import contiguous_rows, next_token_logits, run_rows
from models.loading import LanguageModel
from models.placing import choose_placers
from models.prompt import Prompt
from models.reader import ChunkReader
from models.rotary import rotate
from models.scoring import answer_log_probs, divergence, read_full
from models.strategies import find_strategy
from tests.models.conftest import load, sample_prompt

ANSWER_TOKENS = 6


@pytest.fixture(scope="module")
def model(llama_folder: Path) -> LanguageModel:
    return load(llama_folder)


@pytest.fixture(scope="module")
def prompt(model: LanguageModel) -> Prompt:
    return sample_prompt(model, 3)


@pytest.fixture
def executor(model: LanguageModel, prompt: Prompt) -> Iterator[Executor]:
    executor = Executor(ChunkReader(model, prompt.head, "head", "f32"), choose_placers("plain"))
    yield executor
    executor.close()


def test_a_second_full_reading_says_the_same(executor: Executor, prompt: Prompt) -> None:
    first = read_full(executor, prompt, ANSWER_TOKENS)
    executor.arena.keys.fill_(3)
    executor.arena.values.fill_(-3)
    second = read_full(executor, prompt, ANSWER_TOKENS)
    assert first.answer == second.answer
    assert first.fed == first.answer[: ANSWER_TOKENS - 1]
    assert torch.equal(first.log_probs, second.log_probs)
    assert torch.equal(first.keys, second.keys)
    assert divergence(first.log_probs, second.log_probs).mean_kl == 0


def test_every_position_is_what_decoding_one_by_one_gives(executor: Executor, prompt: Prompt) -> None:
    reading = read_full(executor, prompt, ANSWER_TOKENS)
    model, arena = executor.model, executor.arena
    hidden = run_rows(model, arena, prompt.ids(), contiguous_rows(0, prompt.tokens, model.device), prompt.tokens)
    expected = [next_token_logits(model, hidden)]
    for number, token in enumerate(reading.fed):
        at = prompt.tokens + number
        hidden = run_rows(model, arena, [token], contiguous_rows(at, 1, model.device), at + 1)
        expected.append(next_token_logits(model, hidden))
    assert reading.log_probs.dtype == torch.float32
    torch.testing.assert_close(reading.log_probs, torch.log_softmax(torch.stack(expected), -1), atol=1e-4, rtol=0)
    assert reading.log_probs.argmax(-1).tolist()[: len(reading.answer)] == list(reading.answer)


def test_kv_is_that_of_the_whole_prompt_before_rotary(executor: Executor, prompt: Prompt) -> None:
    reading = read_full(executor, prompt, ANSWER_TOKENS)
    cos, sin = executor.model.rotary.upto(prompt.tokens)
    assert reading.keys.shape[2] == reading.values.shape[2] == prompt.tokens
    placed = rotate(reading.keys.float(), cos[: prompt.tokens], sin[: prompt.tokens])
    torch.testing.assert_close(placed, executor.arena.keys[:, :, : prompt.tokens], atol=1e-5, rtol=0)
    torch.testing.assert_close(reading.values, executor.arena.values[:, :, : prompt.tokens])


def test_any_source_of_kv_can_be_scored(executor: Executor, model: LanguageModel, prompt: Prompt) -> None:
    """One chunk reused after the head is exact; three that never saw each other are not."""
    for chunks, low, high in ((1, 0.0, 1e-6), (3, 1e-3, math.inf)):
        part = replace(prompt, chunks=prompt.chunks[:chunks])
        reading = read_full(executor, part, ANSWER_TOKENS)
        source = ComputedSource(ChunkReader(model, part.head, "head", "f32"), part.chunks)
        executor.execute(part, find_strategy("reuse").plan(part), source, ANSWER_TOKENS)
        found = divergence(reading.log_probs, answer_log_probs(executor, part, reading.fed))
        assert low <= found.mean_kl <= high


def test_an_answer_that_ends_at_once_has_one_position(executor: Executor, prompt: Prompt) -> None:
    silent = replace(executor.model, stop_ids=frozenset(range(10_000)))
    executor.model = silent
    reading = read_full(executor, prompt, ANSWER_TOKENS)
    assert reading.answer == reading.fed == ()
    assert len(reading.log_probs) == 1


def test_what_cannot_be_scored_is_refused(executor: Executor, model: LanguageModel, prompt: Prompt) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        read_full(executor, prompt, 0)
    small = replace(model, window=prompt.tokens + ANSWER_TOKENS - 1)
    narrow = Executor(ChunkReader(small, prompt.head, "head", "f32"), choose_placers("plain"))
    with pytest.raises(PromptTooLong):
        read_full(narrow, prompt, ANSWER_TOKENS)
    narrow.close()


def test_divergence_by_hand() -> None:
    full = torch.tensor([[0.5, 0.5], [0.9, 0.1]]).log()
    method = torch.tensor([[0.25, 0.75], [0.8, 0.2]]).log()
    found = divergence(full, method)
    first = 0.5 * math.log(2) + 0.5 * math.log(2 / 3)
    second = 0.9 * math.log(0.9 / 0.8) + 0.1 * math.log(0.5)
    assert found.kl == pytest.approx((first, second), abs=1e-6)
    assert found.mean_kl == pytest.approx((first + second) / 2, abs=1e-6)
    assert (found.agrees, found.top1) == ((False, True), 0.5)
    for other in (method[:1], method[:, :1], torch.empty(0, 2)):
        with pytest.raises(ValueError, match="cannot be compared"):
            divergence(torch.empty(0, 2) if not len(other) else full, other)
