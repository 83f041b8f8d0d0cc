"""What every tier promises (storage/tiers/base.py). A new tier adds a factory to `TIERS`, nothing else."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest

from storage.blocks import EncodedBlock
from storage.buffers import AlignedBuffers
from storage.tiers import PageableTier, Tier
from tests.storage.blocks.builders import make_block, same_block

Factory = Callable[[int, AlignedBuffers], Tier]
# A factory makes a tier of so many bytes; memory that the tier frees goes back to the buffers.
TIERS: dict[str, Factory] = {"pageable": PageableTier}
SIZE = make_block().data.nbytes
KEYS = [letter * 64 for letter in "abcdefgh"]


@pytest.fixture
def buffers() -> AlignedBuffers:
    return AlignedBuffers()


@pytest.fixture(params=list(TIERS.values()), ids=list(TIERS))
def make_tier(request: pytest.FixtureRequest, buffers: AlignedBuffers) -> Callable[[int], Tier]:
    factory: Factory = request.param
    return lambda blocks: factory(blocks * SIZE, buffers)


def block_in(buffers: AlignedBuffers, key: str) -> EncodedBlock:
    """A block in reusable memory; each key has other bytes."""
    block = make_block(key, seed=KEYS.index(key))
    buffer = buffers.take(block.data.nbytes)
    buffer[:] = block.data
    return replace(block, data=buffer, buffer=buffer)


def keep(tier: Tier, buffers: AlignedBuffers, *keys: str) -> None:
    """Offer blocks and give their leases back at once."""
    for key in keys:
        lease = tier.offer(block_in(buffers, key))
        assert lease is not None
        lease.release()


def here(tier: Tier) -> set[str]:
    """Keys that a lookup finds."""
    found = set()
    for key in KEYS:
        lease = tier.lease(key)
        if lease is not None:
            assert lease.block.header.key == key
            lease.release()
            found.add(key)
    return found


def test_a_block_offered_is_served(make_tier: Callable[[int], Tier], buffers: AlignedBuffers) -> None:
    tier = make_tier(2)
    assert tier.lease(KEYS[0]) is None
    assert (tier.blocks, tier.used_bytes) == (0, 0)
    keep(tier, buffers, KEYS[0])
    lease = tier.lease(KEYS[0])
    assert lease is not None
    assert lease.tier == tier.name
    assert same_block(lease.block, make_block(KEYS[0]))
    assert tier.lease(KEYS[1]) is None
    assert (tier.blocks, tier.used_bytes) == (1, SIZE)
    lease.release()
    assert (tier.blocks, tier.used_bytes) == (1, SIZE)


@pytest.mark.parametrize("budget", [0, 1])
def test_no_room_keeps_nothing(make_tier: Callable[[int], Tier], buffers: AlignedBuffers, budget: int) -> None:
    tier = make_tier(budget)
    block = block_in(buffers, KEYS[0])
    if budget:
        larger = make_block(KEYS[0], tokens=200)
        block = replace(larger, buffer=None)
    assert tier.offer(block) is None
    assert (tier.blocks, tier.used_bytes) == (0, 0)
    assert here(tier) == set()


def test_the_budget_holds(make_tier: Callable[[int], Tier], buffers: AlignedBuffers) -> None:
    tier = make_tier(3)
    for number, key in enumerate(KEYS):
        keep(tier, buffers, key)
        assert tier.used_bytes <= 3 * SIZE
        assert tier.blocks == min(number + 1, 3)
        assert key in here(tier)


def test_a_leased_block_survives_eviction(make_tier: Callable[[int], Tier], buffers: AlignedBuffers) -> None:
    tier = make_tier(2)
    keep(tier, buffers, KEYS[0])
    lease = tier.lease(KEYS[0])
    assert lease is not None
    keep(tier, buffers, *KEYS[1:])
    assert KEYS[0] in here(tier)
    assert same_block(lease.block, make_block(KEYS[0]))
    lease.release()
    keep(tier, buffers, *KEYS[1:])
    assert KEYS[0] not in here(tier)


def test_where_all_is_leased_an_offer_is_refused(make_tier: Callable[[int], Tier], buffers: AlignedBuffers) -> None:
    tier = make_tier(2)
    leases = [tier.offer(block_in(buffers, key)) for key in KEYS[:2]]
    assert tier.offer(block_in(buffers, KEYS[2])) is None
    assert here(tier) == set(KEYS[:2]), "a refused offer evicted something"
    for lease in leases:
        assert lease is not None
        lease.release()
    keep(tier, buffers, KEYS[2])


def test_a_refused_offer_evicts_nothing(make_tier: Callable[[int], Tier], buffers: AlignedBuffers) -> None:
    """One block can go, but its room is not enough: then it stays too."""
    tier = make_tier(2)
    keep(tier, buffers, KEYS[0])
    lease = tier.offer(block_in(buffers, KEYS[1]))
    assert tier.offer(make_block(KEYS[2], tokens=120)) is None
    assert here(tier) == set(KEYS[:2])
    assert lease is not None
    lease.release()


def test_a_retired_block_is_not_found_but_stays_readable(
    make_tier: Callable[[int], Tier], buffers: AlignedBuffers
) -> None:
    tier = make_tier(2)
    keep(tier, buffers, KEYS[0])
    first, second = tier.lease(KEYS[0]), tier.lease(KEYS[0])
    assert first is not None
    assert second is not None
    tier.retire(KEYS[0])
    tier.retire(KEYS[0])
    tier.retire("unknown")
    assert tier.lease(KEYS[0]) is None
    assert (tier.blocks, tier.used_bytes) == (0, SIZE)
    first.release()
    assert tier.used_bytes == SIZE
    taken = buffers.take(SIZE)
    taken[:] = 0
    assert same_block(second.block, make_block(KEYS[0])), "memory was used again under a lease"
    second.release()
    assert tier.used_bytes == 0


def test_memory_is_used_again_only_after_the_last_lease(
    make_tier: Callable[[int], Tier], buffers: AlignedBuffers
) -> None:
    tier = make_tier(2)
    block = block_in(buffers, KEYS[0])
    address = block.data.ctypes.data
    lease = tier.offer(block)
    assert lease is not None
    tier.retire(KEYS[0])
    held = [buffers.take(SIZE) for _ in range(3)]
    assert address not in {buffer.ctypes.data for buffer in held}
    lease.release()
    assert buffers.take(SIZE).ctypes.data == address


def test_the_first_block_of_a_key_wins(make_tier: Callable[[int], Tier], buffers: AlignedBuffers) -> None:
    tier = make_tier(2)
    keep(tier, buffers, KEYS[0])
    late = block_in(buffers, KEYS[0])
    address = late.data.ctypes.data
    lease = tier.offer(late)
    assert lease is not None
    assert lease.block is not late
    assert (tier.blocks, tier.used_bytes) == (1, SIZE)
    assert buffers.take(SIZE).ctypes.data == address, "the late block's memory was lost"
    lease.release()


def test_the_same_block_offered_twice_keeps_its_memory(
    make_tier: Callable[[int], Tier], buffers: AlignedBuffers
) -> None:
    tier = make_tier(2)
    block = block_in(buffers, KEYS[0])
    leases = [tier.offer(block), tier.offer(block)]
    taken = buffers.take(SIZE)
    assert taken.ctypes.data != block.data.ctypes.data
    for lease in leases:
        assert lease is not None
        lease.release()


def test_a_lease_is_released_once(make_tier: Callable[[int], Tier], buffers: AlignedBuffers) -> None:
    tier = make_tier(2)
    lease = tier.offer(block_in(buffers, KEYS[0]))
    other = tier.lease(KEYS[0])
    assert lease is not None
    assert other is not None
    lease.release()
    with pytest.raises(RuntimeError, match="twice"):
        lease.release()
    tier.retire(KEYS[0])
    assert tier.used_bytes == SIZE, "the second release gave away the other's lease"
    other.release()
    assert tier.used_bytes == 0


def test_a_retired_key_may_come_back(make_tier: Callable[[int], Tier], buffers: AlignedBuffers) -> None:
    tier = make_tier(2)
    lease = tier.offer(block_in(buffers, KEYS[0]))
    tier.retire(KEYS[0])
    keep(tier, buffers, KEYS[0])
    assert (tier.blocks, tier.used_bytes) == (1, 2 * SIZE)
    assert lease is not None
    lease.release()
    assert (tier.blocks, tier.used_bytes) == (1, SIZE)
    assert here(tier) == {KEYS[0]}


def test_threads(make_tier: Callable[[int], Tier], buffers: AlignedBuffers) -> None:
    """Whatever is offered, evicted and retired meanwhile, a lease shows its own block."""
    tier = make_tier(3)
    expected = {key: make_block(key, seed=number).data for number, key in enumerate(KEYS)}
    start = threading.Barrier(4)

    def work(seed: int) -> int:
        chance = np.random.default_rng(seed)
        served = 0
        start.wait()
        for _ in range(200):
            key = KEYS[chance.integers(len(KEYS))]
            if chance.random() < 0.1:
                tier.retire(key)
            lease = tier.lease(key) or tier.offer(block_in(buffers, key))
            if lease is not None:
                assert np.array_equal(lease.block.data, expected[key])
                served += 1
                lease.release()
        return served

    with ThreadPoolExecutor(4) as threads:
        assert sum(threads.map(work, range(4))) > 400
    for key in KEYS:
        tier.retire(key)
    assert (tier.blocks, tier.used_bytes) == (0, 0)
