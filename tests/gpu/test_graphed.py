"""Decode steps as CUDA graphs: the numbers of eager steps and of plain passes, and the tokens of `generate`."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from models.arena import Arena
from models.decoding import DecodeRow, decode_each, decode_rows
from models.forward import contiguous_rows, next_token_logits, run_rows
from models.generation import steps_ahead
from models.loading import LanguageModel, load_language_model, load_random_model
from models.stepping import EagerRunner, GraphRunner, Steps, choose_steps, steps_of
from tests.gpu.marks import NEEDS_CUDA
from tests.models.test_stepping import CONTEXT, NEW_TOKENS, read
from tests.models.tiny import ARCHITECTURES, save_tiny_model

pytestmark = NEEDS_CUDA
CUDA = torch.device("cuda")


@pytest.fixture(scope="module", params=ARCHITECTURES)
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> LanguageModel:
    torch.backends.cuda.matmul.allow_tf32 = False
    folder: Path = save_tiny_model(tmp_path_factory.mktemp("graphed") / "model", request.param, "llama3")
    return replace(load_language_model(folder, CUDA), stop_ids=frozenset())


def graphs(model: LanguageModel) -> tuple[Steps, GraphRunner]:
    choice = choose_steps("graph", model)
    assert choice.steps is not None
    assert isinstance(choice.steps.runner, GraphRunner), choice.reason
    return choice.steps, choice.steps.runner


def test_auto_takes_it(model: LanguageModel) -> None:
    choice = choose_steps("auto", model)
    assert (choice.name, choice.reason) == ("graph", "a step was captured here, Triton between products")
    assert steps_of(model) is choice.steps


@pytest.mark.parametrize("attention", ["auto", "plain"])
def test_a_graph_gives_what_a_pass_gives(tmp_path: Path, attention: str) -> None:
    """Across a bucket's end, by the Triton kernels and by SDPA; two arenas by turns, one of them grown."""
    torch.backends.cuda.matmul.allow_tf32 = False
    folder = save_tiny_model(tmp_path / "model", "qwen3", "yarn")
    model = load_language_model(folder, CUDA, attention=attention)
    graph, runner = graphs(model)
    eager = Steps(model, EagerRunner("a test"))
    for _ in range(2):
        pairs = [(read(model, seed=seed), read(model, seed=seed), read(model, seed=seed)) for seed in (1, 2)]
        for position in range(CONTEXT, CONTEXT + 12):
            for (plain, first), (ours, _), (its, _) in pairs:
                token = (first + position) % 200
                expected = decode_each(model, [DecodeRow(token, position, plain)])[0]
                found = graph.logits(model, ours, position, token)
                torch.testing.assert_close(found, eager.logits(model, its, position, token), atol=1e-3, rtol=0)
                torch.testing.assert_close(found, expected, atol=1e-3, rtol=0)
        assert runner.name == "graph", runner.reason
        assert len(runner) == 4
        for (plain, _), (ours, _), (its, _) in pairs:
            for arena in (plain, ours, its):
                arena.reserve(arena.capacity + 1)
    found = decode_rows(model, [DecodeRow(3, 5, pairs[0][1][0])])
    assert bool(torch.isfinite(found).all())
    assert len(runner) == 1, "what was grown is captured again"


def test_tokens_read_a_step_behind_are_the_same(model: LanguageModel) -> None:
    """Two answers by turns, and each alone, and by plain passes."""
    graph, _ = graphs(model)
    alone, together, plain = [], [], []
    for seed in (1, 2):
        arena, token = read(model, seed=seed)
        alone.append(list(steps_ahead(graph, model, arena, token, CONTEXT, NEW_TOKENS)))
        arena, _ = read(model, seed=seed)
        together.append(steps_ahead(graph, model, arena, token, CONTEXT, NEW_TOKENS))
        arena, _ = read(model, seed=seed)
        said = [token]
        for position in range(CONTEXT, CONTEXT + NEW_TOKENS - 1):
            said.append(int(decode_each(model, [DecodeRow(said[-1], position, arena)])[0].argmax()))
        plain.append(said)
    assert [list(each) for each in zip(*zip(*together, strict=True), strict=True)] == alone == plain


def test_a_capture_while_another_thread_works(model: LanguageModel) -> None:
    """As the loader's threads do: their memory and kernels neither spoil a graph nor end up in it."""
    graph, runner = graphs(model)
    arena, token = read(model)
    expected = decode_each(model, [DecodeRow(token, CONTEXT, arena)])[0]

    def work() -> float:
        total = 0.0
        for size in range(1, 200):
            total += float(torch.ones(size * 1000, device=CUDA).sum())
        return total

    with ThreadPoolExecutor(2) as threads:
        working = [threads.submit(work) for _ in range(2)]
        while not all(each.done() for each in working):
            fresh, _ = read(model)
            torch.testing.assert_close(graph.logits(model, fresh, CONTEXT, token), expected, atol=1e-3, rtol=0)
    assert {each.result() for each in working} == {1000.0 * sum(range(1, 200))}
    assert runner.name == "graph", runner.reason


@pytest.mark.parametrize("weights", ["int8", "int4"])
def test_quantised_weights_are_captured_or_say_why_not(tmp_path: Path, weights: str) -> None:
    folder = save_tiny_model(tmp_path / "model", "llama")
    model = load_language_model(folder, CUDA, weights)
    choice = choose_steps("auto", model)
    assert choice.name == "graph" or "captured" in choice.reason
    arena, token = read(model)
    found = decode_rows(model, [DecodeRow(token, CONTEXT, arena)])
    near = 2e-2 * float(found.abs().max())
    torch.testing.assert_close(found, decode_each(model, [DecodeRow(token, CONTEXT, arena)]), atol=near, rtol=0)


def test_bfloat16_steps_are_near_a_pass() -> None:
    """Kernels of small steps round where transformers' modules round, but sum in another order."""
    model = load_random_model("random:tiny", CUDA)
    steps, _ = graphs(model)
    arena = Arena(model.geometry, model.dtype, model.device, model.window)
    arena.reserve(64)
    hidden = run_rows(model, arena, list(range(40)), contiguous_rows(0, 40, CUDA), 40)
    token = int(next_token_logits(model, hidden).argmax())
    expected = decode_each(model, [DecodeRow(token, 40, arena)])[0]
    near = 3e-2 * float(expected.abs().max())
    torch.testing.assert_close(steps.logits(model, arena, 40, token), expected, atol=near, rtol=0)
