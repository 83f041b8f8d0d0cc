"""Loading from one end while computing from the other: the answer is that of a full read, whatever comes when."""

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from models.executor import Execution, Executor
from models.landing import LayerListener
from models.loading import LanguageModel
from models.placing import choose_placers
from models.prompt import Prompt
from models.reader import ChunkReader
from models.strategies import StrategyOptions, find_strategy, mixed_plan
from storage.blocks import EncodedBlock
from storage.tiers import Lease
from tests.models.conftest import load, sample_prompt

CHUNKS = 4
NEVER_MS = 1e6


class ExactBlocks:
    """Blocks cut out of a full read, so that any mixture of loading and computing must give the same logits.

    Chunks in `stalled` come only when `release` is called, those in `absent` never.
    """

    def __init__(self, blocks: dict[int, EncodedBlock], stalled: set[int], absent: set[int]) -> None:
        self._blocks, self._stalled, self._absent = blocks, stalled, absent
        self._gate = threading.Event()
        self._lock = threading.Lock()
        self.leased = self.released = 0
        self.order: list[int] = []

    def load(self, chunk: int, on_layers: LayerListener) -> Lease | None:
        with self._lock:
            self.order.append(chunk)
        if chunk in self._absent:
            return None
        block = self._blocks[chunk]
        layers = block.header.geometry.layers
        with self._lock:
            self.leased += 1
        on_layers(block, range(1))
        if chunk in self._stalled:
            self._gate.wait(30)
        on_layers(block, range(1, layers))
        return Lease(block, "disk", self._release)

    def compute(self, chunk: int) -> EncodedBlock:
        raise AssertionError("a plan that overtakes computes chunks with their prompt")

    def release(self) -> None:
        self._gate.set()

    def _release(self) -> None:
        with self._lock:
            self.released += 1


@pytest.fixture(scope="module")
def model(llama_folder: Path) -> LanguageModel:
    return load(llama_folder)


@pytest.fixture(scope="module")
def prompt(model: LanguageModel) -> Prompt:
    return sample_prompt(model, CHUNKS)


@pytest.fixture
def executor(model: LanguageModel, prompt: Prompt) -> Iterator[Executor]:
    executor = Executor(ChunkReader(model, prompt.head, "head", "f32"), choose_placers())
    yield executor
    executor.close()


@pytest.fixture(scope="module")
def exact(model: LanguageModel, prompt: Prompt) -> dict[int, EncodedBlock]:
    """Each chunk's keys and values as a full read of the prompt has them."""
    blocks = {}
    for number in range(CHUNKS):
        before = [prompt.head, *prompt.chunks[:number]]
        ids = np.concatenate(before)
        reader = ChunkReader(model, ids, "head", "f32")
        blocks[number] = reader.block(prompt.chunks[number], "0" * 64, "f", "c")
    return blocks


def full(executor: Executor, prompt: Prompt) -> Execution:
    return executor.execute(prompt, find_strategy("full").plan(prompt), ExactBlocks({}, set(), set()))


@pytest.mark.parametrize("computed", [(), (0,), (0, 1), (1,), (3,), (0, 2), (0, 1, 2), (0, 1, 2, 3)])
@pytest.mark.parametrize("stalled", [set(), {0}, {3}, {1, 2}, {0, 1, 2, 3}])
@pytest.mark.parametrize("absent", [set(), {2}, {0, 3}])
def test_any_mixture_is_a_full_read(
    executor: Executor,
    prompt: Prompt,
    exact: dict[int, EncodedBlock],
    computed: tuple[int, ...],
    stalled: set[int],
    absent: set[int],
) -> None:
    expected = full(executor, prompt)
    executor.arena.keys.fill_(9)
    executor.arena.values.fill_(-9)
    source = ExactBlocks(exact, stalled, absent)
    wait_ms = 20.0 if stalled else NEVER_MS
    done = executor.execute(prompt, mixed_plan(prompt, computed, wait_ms), source)
    arena = executor.arena.keys.clone()
    source.release()
    executor.close()  # what was stalled has ended
    assert torch.equal(executor.arena.keys, arena), "a block that came too late was written"
    torch.testing.assert_close(done.logits, expected.logits, atol=1e-4, rtol=0)
    assert source.leased == source.released
    loaded = set(range(CHUNKS)) - set(computed) - absent
    assert done.overtaken == len(loaded & stalled)
    assert done.tiers.get("disk", 0) == len(loaded - stalled)
    assert done.tokens_reused == len(prompt.head) + sum(len(prompt.chunks[n]) for n in loaded - stalled)
    assert done.tokens_reused + done.tokens_computed == prompt.tokens
    assert done.load_ms + done.place_ms >= (15 if done.overtaken else 0)
    assert min(done.load_ms, done.place_ms, done.compute_ms) >= 0


@pytest.mark.parametrize("select", ["paper", "last", "spread"])
@pytest.mark.parametrize(("computed", "absent", "stalled"), [((), {1}, set()), ((2,), set(), {0, 3}), ((), set(), {1})])
def test_what_reread_chunks_need_is_overtaken_too(
    executor: Executor,
    prompt: Prompt,
    exact: dict[int, EncodedBlock],
    select: str,
    computed: tuple[int, ...],
    absent: set[int],
    stalled: set[int],
) -> None:
    """Tokens are chosen of the blocks that came; computing them again over exact blocks changes nothing."""
    expected = full(executor, prompt)
    executor.arena.keys.fill_(9)
    executor.arena.values.fill_(-9)
    source = ExactBlocks(exact, stalled, absent)
    fusion = find_strategy("fusion", StrategyOptions(0.3, select)).plan(prompt)
    wait_ms = 20.0 if stalled else NEVER_MS
    done = executor.execute(prompt, mixed_plan(prompt, computed, wait_ms, fusion), source)
    source.release()
    executor.close()
    torch.testing.assert_close(done.logits, expected.logits, atol=1e-4, rtol=0)
    came = set(range(CHUNKS)) - set(computed) - absent - stalled
    assert done.overtaken == len(stalled)
    assert 0 < done.tokens_recomputed <= sum(len(prompt.chunks[chunk]) for chunk in came)
    reused = len(prompt.head) + sum(len(prompt.chunks[chunk]) for chunk in came)
    assert done.tokens_reused == reused - done.tokens_recomputed
    assert source.leased == source.released


def test_where_no_block_comes_nothing_is_chosen(
    executor: Executor, prompt: Prompt, exact: dict[int, EncodedBlock]
) -> None:
    source = ExactBlocks(exact, set(range(CHUNKS)), set())
    fusion = find_strategy("fusion", StrategyOptions(0.3, "spread")).plan(prompt)
    done = executor.execute(prompt, mixed_plan(prompt, (), 10.0, fusion), source)
    source.release()
    executor.close()
    torch.testing.assert_close(done.logits, full(executor, prompt).logits, atol=1e-4, rtol=0)
    assert (done.overtaken, done.tokens_recomputed) == (CHUNKS, 0)


def test_loads_begin_at_the_end(executor: Executor, prompt: Prompt, exact: dict[int, EncodedBlock]) -> None:
    source = ExactBlocks(exact, set(), set())
    executor._pool._max_workers = 1  # one thread shows the order
    executor.execute(prompt, mixed_plan(prompt, (), NEVER_MS), source)
    assert source.order == [3, 2, 1, 0]


def test_the_next_question_is_right_while_a_load_still_stalls(
    executor: Executor, prompt: Prompt, exact: dict[int, EncodedBlock]
) -> None:
    expected = full(executor, prompt).logits
    stuck = ExactBlocks(exact, {0}, set())
    executor.execute(prompt, mixed_plan(prompt, (), 10.0), stuck)
    again = executor.execute(prompt, mixed_plan(prompt, (), NEVER_MS), ExactBlocks(exact, set(), set()))
    torch.testing.assert_close(again.logits, expected, atol=1e-4, rtol=0)
    assert again.overtaken == 0
    stuck.release()
    executor.close()
    assert stuck.leased == stuck.released


def test_passes_that_overtake_are_no_loading(
    executor: Executor, prompt: Prompt, exact: dict[int, EncodedBlock], monkeypatch: pytest.MonkeyPatch
) -> None:
    compute = executor._pass

    def slow(*arguments: Any) -> float:
        time.sleep(0.1)
        return compute(*arguments) + 0.1

    monkeypatch.setattr(executor, "_pass", slow)
    source = ExactBlocks(exact, {0, 1}, set())
    done = executor.execute(prompt, mixed_plan(prompt, (), 5.0), source)
    source.release()
    assert done.overtaken == 2
    assert done.compute_ms >= 100
    assert done.load_ms + done.place_ms < 100
