"""Steps of unchanging shapes: the tokens and logits of plain passes; graphs kept, dropped and given up as they must."""

import gc
import threading
import warnings
import weakref
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from models.arena import GROWTH_TOKENS, Arena
from models.decoding import DecodeRow, decode_each, decode_rows
from models.errors import DeviceUnavailable
from models.executor import ComputedSource, Executor
from models.forward import contiguous_rows, next_token_logits, run_rows
from models.generation import generate, steps_ahead
from models.loading import LanguageModel
from models.placing import choose_placers
from models.reader import ChunkReader
from models.stepping import (
    MOST_GRAPHS,
    EagerRunner,
    GraphRunner,
    Steps,
    bucket_slots,
    choose_steps,
    steps_of,
)
from models.stepping.choosing import graphed_choice
from models.strategies import find_strategy
from tests.models.conftest import load, sample_prompt

CONTEXT = 250  # the seventh token after it crosses into the next bucket
NEW_TOKENS = 20
Step = Callable[[], None]


class FakeCapture:
    """What a step did is done again by calling it: a graph that can be had without a GPU. `fails`: from then on."""

    def __init__(self) -> None:
        self.captured = self.replayed = 0
        self.fails = False

    def __call__(self, step: Step) -> Step:
        if self.fails:
            raise RuntimeError("operation not permitted when stream is capturing\nmore")
        step()  # as the warming does: it must be possible to do a step twice
        self.captured += 1

        def replay() -> None:
            self.replayed += 1
            step()

        return replay


def read(model: LanguageModel, context: int = CONTEXT, room: int = NEW_TOKENS, seed: int = 1) -> tuple[Arena, int]:
    """An arena with so many random tokens read, and the likeliest token after them."""
    arena = Arena(model.geometry, model.dtype, model.device, model.window)
    arena.reserve(context + room)
    ids = torch.randint(0, 200, (context,), generator=torch.Generator().manual_seed(seed)).numpy()
    hidden = run_rows(model, arena, ids, contiguous_rows(0, context, model.device), context)
    return arena, int(next_token_logits(model, hidden).argmax())


@pytest.fixture(scope="module")
def llama(llama_folder: Path) -> LanguageModel:
    return replace(load(llama_folder), stop_ids=frozenset())


@pytest.fixture
def restored(llama: LanguageModel) -> Iterator[LanguageModel]:
    """What a test chooses for the model is taken back."""
    yield llama
    choose_steps("auto", llama)


def test_a_step_gives_what_a_pass_gives(tiny_folder: Path) -> None:
    """Every architecture and rotary kind, in float32, across a bucket's end, by eager steps and a replayed graph."""
    model = load(tiny_folder)
    graphs = GraphRunner(FakeCapture(), "a test")
    ways = [Steps(model, EagerRunner("a test")), Steps(model, graphs)]
    (plain, token), *others = (read(model) for _ in range(3))
    for position in range(CONTEXT, CONTEXT + 12):
        expected = decode_each(model, [DecodeRow(token, position, plain)])[0]
        for steps, (arena, _) in zip(ways, others, strict=True):
            found = steps.logits(model, arena, position, token)
            torch.testing.assert_close(found, expected, atol=1e-4, rtol=0)
        token = int(expected.argmax())
    for arena, _ in others:
        torch.testing.assert_close(arena.keys, plain.keys, atol=1e-4, rtol=0)
        torch.testing.assert_close(arena.values, plain.values, atol=1e-4, rtol=0)
    assert len(graphs) == 2, "one a bucket"


@pytest.mark.parametrize("asked", ["eager", "plain"])
def test_decode_rows_goes_the_chosen_way(restored: LanguageModel, asked: str, monkeypatch: pytest.MonkeyPatch) -> None:
    taken, real = [], Steps.logits

    def noted(*args: Any) -> torch.Tensor:
        taken.append(1)
        return real(*args)

    monkeypatch.setattr(Steps, "logits", noted)
    choice = choose_steps(asked, restored)
    assert choice.name == asked
    arena, token = read(restored)
    found = decode_rows(restored, [DecodeRow(token, CONTEXT, arena)])
    assert len(taken) == (asked == "eager")
    torch.testing.assert_close(found, decode_each(restored, [DecodeRow(token, CONTEXT, arena)]), atol=1e-4, rtol=0)


def test_generate_says_the_same_by_steps(restored: LanguageModel) -> None:
    """Also after a stop token, a stop event and as many as were asked for; and where the arena has no slot more."""
    prompt = sample_prompt(restored, 2)
    reader = ChunkReader(restored, prompt.head, "head", "f32")
    executor = Executor(reader, choose_placers("plain"))
    plan, source = find_strategy("full").plan(prompt), ComputedSource(reader, prompt.chunks)

    def said(asked: str, most: int, stops: frozenset[int] = frozenset(), until: int = 99) -> list[int]:
        executor.model = replace(restored, stop_ids=stops)
        choose_steps(asked, restored)
        logits = executor.execute(prompt, plan, source, most).logits
        stop, found = threading.Event(), []
        for token in generate(executor, logits, prompt.tokens, most, stop):
            found.append(token)
            if len(found) == until:
                stop.set()
        return found

    room = GROWTH_TOKENS - prompt.tokens % GROWTH_TOKENS
    whole = said("plain", room)
    assert len(whole) > 12
    for most, stops, until in (
        (room, frozenset(), 99), (1, frozenset(), 99), (room, frozenset(whole[5:6]), 99), (room, frozenset(), 3)
    ):  # fmt: skip
        assert said("eager", most, stops, until) == said("plain", most, stops, until)
    executor.close()


def test_two_answers_by_turns_do_not_mix(llama: LanguageModel) -> None:
    """Their steps use the same places: a token that another's step has overwritten is told by the host again."""
    steps = Steps(llama, EagerRunner("a test"))
    seeds = (1, 2)
    alone, together = [], []
    for seed in seeds:
        arena, _ = read(llama, seed=seed)
        alone.append(list(steps_ahead(steps, llama, arena, seed, CONTEXT, NEW_TOKENS)))
        arena, _ = read(llama, seed=seed)
        together.append(steps_ahead(steps, llama, arena, seed, CONTEXT, NEW_TOKENS))
    said = list(zip(*together, strict=True))
    assert [list(each) for each in zip(*said, strict=True)] == alone
    assert alone[0] != alone[1]


def test_a_graph_serves_one_storage_and_bucket(llama: LanguageModel) -> None:
    capture = FakeCapture()
    runner = GraphRunner(capture, "a test")
    steps = Steps(llama, runner)
    (one, token), (other, _) = read(llama), read(llama, seed=2)
    for position in (CONTEXT, CONTEXT + 1):
        steps.logits(llama, one, position, token)
        steps.logits(llama, other, position, token)
    assert (capture.captured, capture.replayed, len(runner)) == (2, 4, 2)
    steps.logits(llama, one, 256, token)
    assert (capture.captured, len(runner)) == (3, 3)
    expected = decode_each(llama, [DecodeRow(token, CONTEXT, other)])[0]
    one.reserve(one.capacity + 1)  # its old memory may be anyone's now
    run_rows(llama, one, [token] * 3, contiguous_rows(0, 3, llama.device), 3)
    grown = steps.logits(llama, one, 3, token)
    assert (capture.captured, len(runner)) == (4, 2), "both graphs of the old storage are dropped"
    torch.testing.assert_close(grown, decode_each(llama, [DecodeRow(token, 3, one)])[0], atol=1e-4, rtol=0)
    torch.testing.assert_close(steps.logits(llama, other, CONTEXT, token), expected, atol=1e-4, rtol=0)


def test_graphs_are_bounded_and_go_with_their_arena(llama: LanguageModel) -> None:
    capture = FakeCapture()
    runner = GraphRunner(capture, "a test")
    arena, other = (Arena(llama.geometry, llama.dtype, llama.device, 8) for _ in range(2))
    for each in (arena, other):
        each.reserve(8)
    for slots in [*range(MOST_GRAPHS), 0, MOST_GRAPHS]:
        runner.run(lambda: None, arena, slots, None)
    assert (len(runner), capture.captured) == (MOST_GRAPHS, MOST_GRAPHS + 1)
    runner.run(lambda: None, arena, 0, None)
    assert capture.captured == MOST_GRAPHS + 1, "what was used last is kept"
    runner.run(lambda: None, arena, 1, None)
    assert capture.captured == MOST_GRAPHS + 2
    del arena, each
    runner.run(lambda: None, other, 1, None)
    assert len(runner) == 1


def test_what_cannot_be_captured_goes_on_eagerly_and_says_why(llama: LanguageModel) -> None:
    capture = FakeCapture()
    choice = graphed_choice(llama, GraphRunner(capture, "a test"))
    assert (choice.name, choice.reason) == ("graph", "a test")
    assert choice.steps is not None
    capture.fails = True
    arena, token = read(llama)
    expected = decode_each(llama, [DecodeRow(token, CONTEXT, arena)])[0]
    with pytest.warns(RuntimeWarning, match="goes on without CUDA graphs"):
        found = choice.steps.logits(llama, arena, CONTEXT, token)
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=0)
    assert choice.name == "eager"
    assert choice.reason == "a step cannot be captured (operation not permitted when stream is capturing)"
    with warnings.catch_warnings(action="error"):
        choice.steps.logits(llama, arena, CONTEXT + 1, token)


def test_a_graph_that_gives_other_numbers_is_not_taken(llama: LanguageModel) -> None:
    choice = graphed_choice(llama, GraphRunner(lambda step: lambda: None, "a test"))
    assert (choice.name, choice.reason) == ("eager", "a captured step gave other numbers here")


def test_what_an_earlier_question_left_does_no_harm(llama: LanguageModel) -> None:
    """Slots behind the answer hold what is no number; no plain pass looks at them, nor may a step."""
    steps = Steps(llama, EagerRunner("a test"))
    arena, token = read(llama)
    for tensor in (arena.keys, arena.values):
        tensor[:, :, CONTEXT:] = float("nan")
    for position in (CONTEXT, CONTEXT + 1):
        assert bool(torch.isfinite(steps.logits(llama, arena, position, token)).all())


def test_who_chooses(restored: LanguageModel) -> None:
    assert choose_steps("auto", restored).name == "plain"
    assert steps_of(restored) is None
    assert steps_of(replace(restored, stop_ids=frozenset({1}))) is None
    chosen = choose_steps("eager", restored)
    assert steps_of(replace(restored, stop_ids=frozenset({1}))) is chosen.steps
    with pytest.raises(DeviceUnavailable, match=r"only a GPU .* --decoding auto"):
        choose_steps("graph", restored)
    with pytest.raises(DeviceUnavailable, match="'quick' is unknown"):
        choose_steps("quick", restored)
    assert steps_of(restored) is chosen.steps, "what was refused changes nothing"


def test_a_model_that_is_gone_takes_its_steps_with_it(llama_folder: Path) -> None:
    def once(step: Step) -> Step:
        step()  # a graph holds addresses, not what was called
        return lambda: None

    model = load(llama_folder)
    choice = graphed_choice(model, GraphRunner(once, "a test"))
    assert choose_steps("eager", model).steps is not None
    backbone = weakref.ref(model.backbone)
    del model
    gc.collect()
    assert backbone() is None
    assert choice.steps is not None


@pytest.mark.parametrize(
    ("position", "capacity", "slots"),
    [(0, 512, 256), (255, 512, 256), (256, 512, 512), (1000, 4096, 1024), (1024, 1536, 1536), (9, 100, 100)],
)
def test_buckets(position: int, capacity: int, slots: int) -> None:
    assert bucket_slots(position, capacity) == slots


@pytest.mark.parametrize("position", [-1, 512])
def test_no_slot_outside(llama: LanguageModel, position: int) -> None:
    arena, token = read(llama)
    with pytest.raises(ValueError, match="no slot of an arena of 512"):
        Steps(llama, EagerRunner("a test")).logits(llama, arena, position, token)
