"""Carrying out a plan: every slot filled, every token counted once, every lease given back."""

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from models.errors import PromptTooLong
from models.executor import LOADER_THREADS, ComputedSource, Execution, Executor
from models.landing import LayerListener
from models.loading import LanguageModel
from models.placing import choose_placers
from models.prompt import Prompt
from models.reader import ChunkReader
from models.strategies import Plan, find_strategy
from storage.blocks import EncodedBlock
from storage.tiers import Lease
from tests.models.conftest import load, sample_prompt

CHUNKS = 3


class CountingSource:
    """Blocks computed once and then leased; counts leases. Indices in `lost` are missing, `fails` raise."""

    def __init__(self, reader: ChunkReader, prompt: Prompt, lost: tuple[int, ...] = ()) -> None:
        self._inner = ComputedSource(reader, prompt.chunks)
        self._blocks = {n: self._inner.compute(n) for n in range(len(prompt.chunks)) if n not in lost}
        self._lock = threading.Lock()
        self.taken: list[int] = []
        self.released: Counter[int] = Counter()
        self.computed: list[int] = []
        self.fails: dict[int, Exception] = {}
        self.wait: Callable[[int], None] = lambda chunk: None

    def load(self, chunk: int, on_layers: LayerListener) -> Lease | None:
        self.wait(chunk)
        if chunk in self.fails:
            raise self.fails[chunk]
        if chunk not in self._blocks:
            return None
        with self._lock:
            self.taken.append(chunk)
        block = self._blocks[chunk]
        lease = Lease(block, "disk" if chunk else "pageable", lambda: self._release(chunk))
        middle = block.header.geometry.layers // 2
        try:
            for layers in (range(middle), range(middle, block.header.geometry.layers)):
                on_layers(block, layers)
        except BaseException:
            lease.release()
            raise
        return lease

    def compute(self, chunk: int) -> EncodedBlock:
        self.computed.append(chunk)
        if -1 in self.fails:
            raise self.fails[-1]
        return self._inner.compute(chunk)

    def _release(self, chunk: int) -> None:
        with self._lock:
            self.released[chunk] += 1

    def all_released(self) -> bool:
        return self.released == Counter(self.taken)


@pytest.fixture(scope="module")
def model(llama_folder: Path) -> LanguageModel:
    return load(llama_folder)


@pytest.fixture(scope="module")
def prompt(model: LanguageModel) -> Prompt:
    return sample_prompt(model, CHUNKS)


@pytest.fixture(scope="module")
def reader(model: LanguageModel, prompt: Prompt) -> ChunkReader:
    return ChunkReader(model, prompt.head, "head", "int8")


@pytest.fixture
def executor(reader: ChunkReader) -> Iterator[Executor]:
    executor = Executor(reader, choose_placers())
    yield executor
    executor.close()


def reuse(executor: Executor, prompt: Prompt, source: CountingSource) -> Execution:
    return executor.execute(prompt, find_strategy("reuse").plan(prompt), source)


@pytest.mark.parametrize("lost", [(), (0,), (2,), (0, 1, 2)])
def test_every_token_is_counted_once(
    executor: Executor, reader: ChunkReader, prompt: Prompt, lost: tuple[int, ...]
) -> None:
    source = CountingSource(reader, prompt, lost)
    done = reuse(executor, prompt, source)
    assert done.tokens_reused + done.tokens_computed == prompt.tokens
    assert done.tokens_computed == len(prompt.tail) + sum(len(prompt.chunks[n]) for n in lost)
    assert sum(done.tiers.values()) == CHUNKS
    assert done.tiers.get("computed", 0) == len(lost)
    assert done.tiers.get("pageable", 0) == (0 not in lost)
    assert sorted(source.computed) == list(lost)
    assert sorted(source.taken) == [n for n in range(CHUNKS) if n not in lost]
    assert source.all_released()
    assert min(done.load_ms, done.place_ms, done.compute_ms) >= 0
    assert done.logits.shape == (len(reader.model.tokenizer),)
    assert done.logits.dtype == torch.float32


@pytest.mark.parametrize("lost", [(), (1,)])
def test_recomputed_tokens_are_counted_once(
    executor: Executor, reader: ChunkReader, prompt: Prompt, lost: tuple[int, ...]
) -> None:
    segments = find_strategy("reuse").plan(prompt).segments
    everything = np.arange(len(prompt.head), prompt.tokens - len(prompt.tail))
    done = executor.execute(prompt, Plan("test", segments, everything), CountingSource(reader, prompt, lost))
    assert (done.tokens_reused, done.tokens_computed) == (len(prompt.head), prompt.tokens - len(prompt.head))


def test_full_loads_nothing(executor: Executor, reader: ChunkReader, prompt: Prompt) -> None:
    source = CountingSource(reader, prompt)
    done = executor.execute(prompt, find_strategy("full").plan(prompt), source)
    assert (done.tokens_reused, done.tokens_computed, done.tiers) == (0, prompt.tokens, {"computed": CHUNKS})
    assert (done.load_ms, done.place_ms) == (0, 0)
    assert source.taken == source.computed == []


def test_a_missing_block_changes_no_answer(executor: Executor, reader: ChunkReader, prompt: Prompt) -> None:
    """Computed by the same function and codec as a stored one, so bit for bit."""
    expected = reuse(executor, prompt, CountingSource(reader, prompt)).logits
    for lost in ((0,), (1, 2), (0, 1, 2)):
        assert torch.equal(reuse(executor, prompt, CountingSource(reader, prompt, lost)).logits, expected)


def test_the_last_question_leaves_no_trace(executor: Executor, reader: ChunkReader, prompt: Prompt) -> None:
    expected = reuse(executor, prompt, CountingSource(reader, prompt)).logits
    shorter = replace(prompt, chunks=prompt.chunks[1:])
    before = reuse(executor, shorter, CountingSource(reader, shorter)).logits
    executor.arena.keys.fill_(7)
    executor.arena.values.fill_(-7)
    assert torch.equal(reuse(executor, prompt, CountingSource(reader, prompt)).logits, expected)
    assert torch.equal(reuse(executor, shorter, CountingSource(reader, shorter)).logits, before)


def test_both_placers_give_the_same_logits(reader: ChunkReader, prompt: Prompt) -> None:
    found = []
    for name in ("compiled", "plain"):
        executor = Executor(reader, choose_placers(name))
        found.append(reuse(executor, prompt, CountingSource(reader, prompt)).logits)
        executor.close()
    assert torch.equal(found[0], found[1])


def test_no_chunks_at_all(executor: Executor, reader: ChunkReader, prompt: Prompt) -> None:
    bare = replace(prompt, chunks=())
    reused = reuse(executor, bare, CountingSource(reader, bare))
    full = executor.execute(bare, find_strategy("full").plan(bare), CountingSource(reader, bare))
    torch.testing.assert_close(reused.logits, full.logits, atol=1e-4, rtol=0)
    assert reused.tiers == {}


@pytest.mark.parametrize("failing", range(CHUNKS))
def test_an_error_of_the_source_is_told_and_every_lease_given_back(
    executor: Executor, reader: ChunkReader, prompt: Prompt, failing: int
) -> None:
    source = CountingSource(reader, prompt)
    source.fails[failing] = OSError("too many open files")
    with pytest.raises(OSError, match="too many"):
        reuse(executor, prompt, source)
    assert source.all_released()
    source.fails.clear()
    assert torch.equal(
        reuse(executor, prompt, source).logits, reuse(executor, prompt, CountingSource(reader, prompt)).logits
    )


def test_an_error_waits_for_the_threads_that_still_place(
    executor: Executor, reader: ChunkReader, prompt: Prompt
) -> None:
    """The next question uses the same slots: nobody may write to them any more when the error is told."""
    source = CountingSource(reader, prompt)
    source.fails[0] = OSError("broken")
    begun = threading.Event()

    def slow(chunk: int) -> None:
        if chunk == 0:
            begun.wait(20)
        else:
            begun.set()
            time.sleep(0.2)

    source.wait = slow
    with pytest.raises(OSError, match="broken"):
        reuse(executor, prompt, source)
    assert source.all_released()
    settled = executor.arena.keys.clone()
    time.sleep(0.4)
    assert torch.equal(executor.arena.keys, settled)
    assert source.taken, "no other block was under way, so the test proves nothing"


def test_an_error_while_placing_gives_the_leases_back(
    executor: Executor, reader: ChunkReader, prompt: Prompt, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = CountingSource(reader, prompt)

    def broken(*_: object) -> None:
        raise RuntimeError("cannot place")

    monkeypatch.setattr(executor, "_place", broken)
    with pytest.raises(RuntimeError, match="cannot place"):
        reuse(executor, prompt, source)
    assert source.taken
    assert source.all_released()


def test_an_error_while_computing_is_told(executor: Executor, reader: ChunkReader, prompt: Prompt) -> None:
    source = CountingSource(reader, prompt, lost=(1,))
    source.fails[-1] = RuntimeError("cannot compute")
    with pytest.raises(RuntimeError, match="cannot compute"):
        reuse(executor, prompt, source)
    assert sorted(source.taken) == [0, 2]
    assert source.all_released()


@pytest.mark.parametrize("room", [0, 5])
def test_a_prompt_that_does_not_fit_is_refused_before_any_load(
    model: LanguageModel, reader: ChunkReader, prompt: Prompt, room: int
) -> None:
    small = replace(model, window=prompt.tokens + room - 1)
    executor = Executor(ChunkReader(small, prompt.head, "head", "int8"), choose_placers())
    source = CountingSource(reader, prompt)
    with pytest.raises(PromptTooLong, match=f"{prompt.tokens + room} tokens .* {small.window}: ask with fewer"):
        executor.execute(prompt, find_strategy("reuse").plan(prompt), source, room)
    executor.close()
    assert source.taken == source.computed == []


def test_loads_overlap(executor: Executor, reader: ChunkReader, prompt: Prompt) -> None:
    source = CountingSource(reader, prompt)
    together = threading.Barrier(min(CHUNKS, LOADER_THREADS), timeout=20)

    def meet(chunk: int) -> None:
        together.wait()

    source.wait = meet
    reuse(executor, prompt, source)
    assert source.all_released()
