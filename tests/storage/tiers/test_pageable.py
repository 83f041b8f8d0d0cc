"""What is particular to the pageable tier: the least recently used goes first."""

import pytest

from storage.buffers import AlignedBuffers
from storage.tiers import PageableTier
from tests.storage.tiers.test_conformance import KEYS, SIZE, block_in, here, keep


@pytest.fixture
def buffers() -> AlignedBuffers:
    return AlignedBuffers()


@pytest.mark.parametrize("touch", ["lease", "offer"])
def test_the_least_recently_used_goes_first(buffers: AlignedBuffers, touch: str) -> None:
    tier = PageableTier(3 * SIZE, buffers)
    keep(tier, buffers, *KEYS[:3])
    lease = tier.lease(KEYS[0]) if touch == "lease" else tier.offer(block_in(buffers, KEYS[0]))
    assert lease is not None
    lease.release()
    keep(tier, buffers, KEYS[3])
    assert here(tier) == {KEYS[0], KEYS[2], KEYS[3]}


def test_no_more_goes_than_must(buffers: AlignedBuffers) -> None:
    tier = PageableTier(3 * SIZE + SIZE // 2, buffers)
    keep(tier, buffers, *KEYS[:4])
    assert here(tier) == set(KEYS[1:4])


def test_evicted_memory_is_used_for_what_comes_next(buffers: AlignedBuffers) -> None:
    tier = PageableTier(SIZE, buffers)
    first = block_in(buffers, KEYS[0])
    lease = tier.offer(first)
    assert lease is not None
    lease.release()
    keep(tier, buffers, KEYS[1])
    assert block_in(buffers, KEYS[2]).data.ctypes.data == first.data.ctypes.data
