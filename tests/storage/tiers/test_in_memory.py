"""What is particular to tiers in memory: the least recently used goes first, refused memory is counted."""

import gc

import pytest
import torch

from storage.buffers import AlignedBuffers
from storage.tiers import DeviceMemory, HostMemory, MemoryTier, find_memory
from storage.tiers.in_memory import TAKES_TO_SKIP
from tests.storage.tiers.builders import KEYS, SIZE, FakeLocks, block_in, here, keep, make_tier
from tests.storage.tiers.faulty import Refusing, RefusingToSettle


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
