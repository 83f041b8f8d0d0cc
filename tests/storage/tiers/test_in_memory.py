"""What is particular to tiers in memory: the least recently used goes first, refused memory is counted."""

import gc
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest
import torch

from storage.blocks import EncodedBlock
from storage.buffers import AlignedBuffers, capacity_bytes
from storage.tiers import DeviceMemory, HostMemory, LockedBuffers, MemoryTier, find_memory
from storage.tiers.in_memory import TAKES_TO_SKIP
from storage.tiers.memory import forget_cuda_error
from tests.storage.blocks.builders import make_block
from tests.storage.tiers.builders import KEYS, SIZE, FakeLocks, block_in, here, keep, make_tier
from tests.storage.tiers.faulty import Refusing, RefusingToSettle, SlowToSettle


@pytest.mark.parametrize("touch", ["lease", "offer"])
def test_the_least_recently_used_goes_first(touch: str) -> None:
    tier = make_tier("pageable", 3 * SIZE)
    keep(tier, *KEYS[:3])
    lease = tier.lease(KEYS[0]) if touch == "lease" else tier.offer(block_in(tier, KEYS[0]))
    assert lease is not None
    lease.release()
    keep(tier, KEYS[3])
    assert here(tier) == {KEYS[0], KEYS[2], KEYS[3]}


def test_no_more_goes_than_must() -> None:
    tier = make_tier("pageable", 3 * SIZE + SIZE // 2)
    keep(tier, *KEYS[:4])
    assert here(tier) == set(KEYS[1:4])


def test_evicted_memory_is_used_for_what_comes_next() -> None:
    tier = make_tier("pageable", SIZE)
    first = block_in(tier, KEYS[0])
    lease = tier.offer(first)
    assert lease is not None
    lease.release()
    keep(tier, KEYS[1])
    assert block_in(tier, KEYS[2]).data.ctypes.data == first.data.ctypes.data


def test_the_same_block_offered_twice_keeps_its_memory() -> None:
    tier = make_tier("pageable", 2 * SIZE)
    block = block_in(tier, KEYS[0])
    leases = [tier.offer(block), tier.offer(block)]
    taken = tier.take(SIZE)
    assert taken is not None
    assert taken.ctypes.data != block.data.ctypes.data
    for lease in leases:
        assert lease is not None
        lease.release()


@pytest.mark.parametrize("refusal", [MemoryError(), RuntimeError("CUDA error: out of memory\nmore"), None])
def test_refused_memory_is_counted_and_not_asked_for_at_once_again(refusal: Exception | None) -> None:
    memory = Refusing(1, refusal)
    tier = MemoryTier("pinned", 2 * SIZE, memory)
    for _ in range(TAKES_TO_SKIP + 1):
        assert tier.take(SIZE) is None
    assert memory.asked == 1
    keep(tier, KEYS[0])
    state = tier.state()
    assert (state.refusals, state.blocks) == (1, 1)
    assert state.reason
    assert "\n" not in state.reason


def test_a_device_that_refuses_the_move_keeps_nothing() -> None:
    tier = MemoryTier("gpu", 2 * SIZE, RefusingToSettle())
    block = block_in(tier, KEYS[0])
    before = bytes(block.data)
    assert tier.offer(block) is None
    assert bytes(block.data) == before
    assert (tier.used_bytes, tier.blocks) == (0, 0)
    assert tier.state().refusals == 1
    assert tier.state().reason == "CUDA out of memory"


def test_a_device_block_gives_its_staging_back() -> None:
    buffers = AlignedBuffers()
    tier = MemoryTier("gpu", 2 * SIZE, DeviceMemory(torch.device("cpu"), buffers))
    block = block_in(tier, KEYS[0])
    lease = tier.offer(block)
    assert lease is not None
    assert buffers.take(SIZE).ctypes.data == block.data.ctypes.data
    assert lease.block.size_bytes == SIZE
    lease.release()


def test_locked_pages_are_unlocked_before_they_are_freed() -> None:
    buffers = FakeLocks(spare_bytes=0)
    before = len(FakeLocks.locked)
    taken = buffers.take(3 * SIZE)
    assert len(FakeLocks.locked) == before + 1
    buffers.give(taken)
    del taken
    gc.collect()
    assert len(FakeLocks.locked) == before


def test_without_a_device_every_tier_is_plain_ram(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    plain = AlignedBuffers()
    for device in ("cpu", "cuda", "cuda:1"):
        for tier in ("gpu", "pinned", "pageable"):
            memory = find_memory(tier, device, plain)
            assert type(memory) is HostMemory
            assert memory.kind == "plain RAM"


def test_with_a_device_each_tier_has_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    kinds = {tier: find_memory(tier, "cuda", AlignedBuffers()).kind for tier in ("gpu", "pinned", "pageable")}
    assert kinds == {"gpu": "device", "pinned": "page-locked", "pageable": "plain RAM"}
    assert find_memory("pinned", "cpu", AlignedBuffers()).kind == "plain RAM"


@pytest.mark.parametrize("limit", [1, 3])
def test_a_limit_of_blocks_counts_those_that_are_moving(limit: int) -> None:
    """Four threads; as many as the limit allows move at once, and no more may begin."""
    tier = MemoryTier("gpu", 100 * SIZE, SlowToSettle(threading.Barrier(limit + 1, timeout=0.2)), limit)
    blocks = [block_in(tier, key) for key in KEYS[:4]]
    with ThreadPoolExecutor(4) as threads:
        leases = list(threads.map(tier.offer, blocks))
    kept = [lease for lease in leases if lease is not None]
    assert len(kept) == tier.blocks == limit
    for lease in kept:
        lease.release()
    keep(tier, *KEYS[4:])
    assert tier.blocks == limit


@pytest.mark.parametrize("error", [MemoryError("no"), RuntimeError("no"), KeyError("a defect")])
def test_a_move_that_fails_holds_no_room(error: Exception) -> None:
    class Failing(HostMemory):
        def settle(self, block: EncodedBlock) -> EncodedBlock:
            raise error

    tier = MemoryTier("gpu", 2 * SIZE, Failing(AlignedBuffers()), 1)
    blocks = [block_in(tier, key) for key in KEYS[:2]]
    with suppress(KeyError):
        assert tier.offer(blocks[0]) is None
    assert (tier.used_bytes, tier.blocks) == (0, 0)
    tier._memory = HostMemory(AlignedBuffers())
    assert tier.offer(blocks[1]) is not None, "the failed move is still counted"
    assert here(tier) == {KEYS[1]}


def test_all_memory_that_is_held_counts() -> None:
    """Sizes are rounded up so that memory can be used again; a budget is about the memory, not about what was asked."""
    block = make_block(KEYS[0], tokens=3300)
    held = capacity_bytes(block.data.nbytes)
    assert held > block.data.nbytes
    too_small = make_tier("pageable", held - 1)
    assert too_small.take(block.data.nbytes) is None
    tier = make_tier("pageable", held)
    lease = tier.admit(block)
    assert lease is not None
    assert tier.used_bytes == held
    lease.release()
    tier.retire(KEYS[0])
    assert tier.used_bytes == 0


def test_a_refused_lock_leaves_no_error_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    class Runtime:
        pending = 0

        def cudaHostRegister(self, *_: int) -> int:  # noqa: N802 CUDA's name
            self.pending = 2
            return 2

        def cudaHostUnregister(self, *_: int) -> int:  # noqa: N802 CUDA's name
            self.pending = 713
            return 713

    runtime = Runtime()
    monkeypatch.setattr(torch.cuda, "cudart", lambda: runtime)
    monkeypatch.setattr("storage.tiers.memory.forget_cuda_error", lambda: setattr(runtime, "pending", 0))
    with pytest.raises(MemoryError, match="cannot be page-locked"):
        LockedBuffers().take(SIZE)
    assert runtime.pending == 0
    LockedBuffers.unlock(4096)
    assert runtime.pending == 0


def test_without_cuda_there_is_no_error_to_forget() -> None:
    forget_cuda_error()
