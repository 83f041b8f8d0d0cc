"""What every tier promises (storage/tiers/base.py). A new kind of memory adds a line to `MEMORIES`, nothing else."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

from storage.tiers import Tier
from tests.storage.blocks.builders import make_block
from tests.storage.tiers.builders import KEYS, MEMORIES, SIZE, block_in, bytes_of, here, is_block, keep, make_tier

Make = Callable[[int], Tier]


@pytest.fixture(params=list(MEMORIES))
def make(request: pytest.FixtureRequest) -> Make:
    """A tier for so many blocks."""
    return lambda blocks: make_tier(request.param, blocks * SIZE)


def test_a_block_offered_is_served(make: Make) -> None:
    tier = make(2)
    assert tier.lease(KEYS[0]) is None
    assert (tier.blocks, tier.used_bytes) == (0, 0)
    keep(tier, KEYS[0])
    lease = tier.lease(KEYS[0])
    assert lease is not None
    assert lease.tier == tier.name
    assert is_block(lease.block, KEYS[0])
    assert tier.lease(KEYS[1]) is None
    assert (tier.blocks, tier.used_bytes) == (1, SIZE)
    lease.release()
    assert (tier.blocks, tier.used_bytes) == (1, SIZE)


def test_a_block_decodes_where_it_lies(make: Make) -> None:
    """The encoded bytes are the same in every tier, so the numbers are."""
    tier = make(1)
    keep(tier, KEYS[0])
    lease = tier.lease(KEYS[0])
    assert lease is not None
    for served, expected in zip(lease.block.decode(), make_block(KEYS[0]).decode(), strict=True):
        assert torch.equal(served, expected)
    lease.release()


def test_a_copy_is_admitted_from_elsewhere(make: Make) -> None:
    tier = make(1)
    original = make_block(KEYS[1], seed=1)
    lease = tier.admit(original)
    assert lease is not None
    original.data[:] = 0
    assert is_block(lease.block, KEYS[1])
    assert tier.admit(make_block(KEYS[2], seed=2)) is None, "there is no room beside a leased block"
    lease.release()


@pytest.mark.parametrize("budget", [0, 1])
def test_what_can_never_be_kept_gets_no_memory(make: Make, budget: int) -> None:
    tier = make(budget)
    large = SIZE * budget + 4096
    assert tier.take(large) is None
    assert tier.admit(make_block(KEYS[0], tokens=200)) is None
    assert (tier.blocks, tier.used_bytes) == (0, 0)
    assert here(tier) == set()


def test_the_budget_holds(make: Make) -> None:
    tier = make(3)
    for number, key in enumerate(KEYS):
        keep(tier, key)
        assert tier.used_bytes <= 3 * SIZE
        assert tier.blocks == min(number + 1, 3)
        assert key in here(tier)


def test_a_limit_of_blocks_holds_as_well(make: Make) -> None:
    tier = make(5)
    keep(tier, *KEYS[:4])
    tier.limit_blocks(2)
    assert here(tier) == set(KEYS[2:4])
    keep(tier, KEYS[4])
    assert here(tier) == {KEYS[3], KEYS[4]}
    tier.limit_blocks(0)
    assert tier.take(SIZE) is None
    assert (tier.blocks, tier.used_bytes) == (0, 0)
    tier.limit_blocks(None)
    keep(tier, *KEYS)
    assert tier.blocks == 5


def test_without_evicting_only_free_room_is_used(make: Make) -> None:
    tier = make(2)
    keep(tier, KEYS[0])
    lease = tier.offer(block_in(tier, KEYS[1]), evict=False)
    assert lease is not None
    lease.release()
    assert tier.offer(block_in(tier, KEYS[2]), evict=False) is None
    assert here(tier) == set(KEYS[:2])


def test_without_evicting_a_limit_of_blocks_holds_too(make: Make) -> None:
    tier = make(3)
    tier.limit_blocks(1)
    keep(tier, KEYS[0])
    assert tier.offer(block_in(tier, KEYS[1]), evict=False) is None
    lease = tier.lease(KEYS[0])
    assert lease is not None
    assert tier.offer(block_in(tier, KEYS[1])) is None, "there is room, but the only block that may be here is leased"
    lease.release()
    keep(tier, KEYS[1])
    assert here(tier) == {KEYS[1]}


def test_a_leased_block_survives_eviction(make: Make) -> None:
    tier = make(2)
    keep(tier, KEYS[0])
    lease = tier.lease(KEYS[0])
    assert lease is not None
    keep(tier, *KEYS[1:])
    assert KEYS[0] in here(tier)
    assert is_block(lease.block, KEYS[0])
    assert tier.shed() == SIZE
    assert here(tier) == {KEYS[0]}
    lease.release()
    keep(tier, *KEYS[1:])
    assert KEYS[0] not in here(tier)


def test_where_all_is_leased_an_offer_is_refused(make: Make) -> None:
    tier = make(2)
    leases = [tier.offer(block_in(tier, key)) for key in KEYS[:2]]
    late = block_in(tier, KEYS[2])
    assert tier.offer(late) is None
    assert is_block(late, KEYS[2]), "a refused block is still its caller's"
    assert here(tier) == set(KEYS[:2]), "a refused offer evicted something"
    for lease in leases:
        assert lease is not None
        lease.release()
    keep(tier, KEYS[2])


def test_a_refused_offer_evicts_nothing(make: Make) -> None:
    """One block can go, but its room is not enough: then it stays too."""
    tier = make(2)
    keep(tier, KEYS[0])
    lease = tier.offer(block_in(tier, KEYS[1]))
    assert tier.offer(make_block(KEYS[2], tokens=60)) is None
    assert here(tier) == set(KEYS[:2])
    assert lease is not None
    lease.release()


def test_a_retired_block_is_not_found_but_stays_readable(make: Make) -> None:
    tier = make(2)
    keep(tier, KEYS[0])
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
    taken = tier.take(SIZE)
    assert taken is not None
    taken[:] = 0
    assert is_block(second.block, KEYS[0]), "memory was used again under a lease"
    second.release()
    assert tier.used_bytes == 0


def test_the_first_block_of_a_key_wins(make: Make) -> None:
    tier = make(2)
    keep(tier, KEYS[0])
    late = block_in(tier, KEYS[0])
    address = late.data.ctypes.data
    lease = tier.offer(late)
    assert lease is not None
    assert lease.block is not late
    assert (tier.blocks, tier.used_bytes) == (1, SIZE)
    again = [buffer.ctypes.data for buffer in (tier.take(SIZE), tier.take(SIZE)) if buffer is not None]
    assert address in again, "the late block's memory was lost"
    lease.release()


def test_a_lease_is_released_once(make: Make) -> None:
    tier = make(2)
    lease = tier.offer(block_in(tier, KEYS[0]))
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


def test_a_retired_key_may_come_back(make: Make) -> None:
    tier = make(2)
    lease = tier.offer(block_in(tier, KEYS[0]))
    tier.retire(KEYS[0])
    keep(tier, KEYS[0])
    assert (tier.blocks, tier.used_bytes) == (1, 2 * SIZE)
    assert lease is not None
    lease.release()
    assert (tier.blocks, tier.used_bytes) == (1, SIZE)
    assert here(tier) == {KEYS[0]}


def test_the_state_tells_what_happened(make: Make) -> None:
    tier = make(2)
    keep(tier, *KEYS[:2])
    assert here(tier) == set(KEYS[:2])
    state = tier.state()
    assert (state.budget_bytes, state.budget_blocks, state.used_bytes) == (2 * SIZE, None, 2 * SIZE)
    assert (state.blocks, state.hits, state.refusals, state.reason) == (2, 2, 0, "")
    assert state.kind in {"plain RAM", "page-locked", "device"}


def test_looking_leaves_no_trace(make: Make) -> None:
    tier = make(2)
    keep(tier, *KEYS[:2])
    assert [tier.holds(key) for key in KEYS[:3]] == [True, True, False]
    assert tier.state().hits == 0
    keep(tier, KEYS[2])
    assert not tier.holds(KEYS[0]), "looked at, but not used: still the first to go"
    tier.retire(KEYS[1])
    assert not tier.holds(KEYS[1])


def test_a_smaller_budget_evicts_what_is_not_leased(make: Make) -> None:
    tier = make(3)
    keep(tier, *KEYS[:3])
    lease = tier.lease(KEYS[0])
    assert lease is not None
    tier.resize(SIZE)
    assert here(tier) == {KEYS[0]}
    assert tier.used_bytes == SIZE
    tier.resize(0)
    assert is_block(lease.block, KEYS[0])
    lease.release()
    tier.resize(2 * SIZE)
    keep(tier, *KEYS[1:3])
    assert {*KEYS[1:3]} <= here(tier)
    assert tier.used_bytes <= 2 * SIZE


def test_threads(make: Make) -> None:
    """Whatever is offered, evicted, shed and retired meanwhile, a lease shows its own block."""
    tier = make(3)
    expected = {key: make_block(key, seed=number).data.tobytes() for number, key in enumerate(KEYS)}
    blocks = {key: make_block(key, seed=number) for number, key in enumerate(KEYS)}
    start = threading.Barrier(4)

    def work(seed: int) -> int:
        chance = np.random.default_rng(seed)
        served = 0
        start.wait()
        for _ in range(200):
            key = KEYS[chance.integers(len(KEYS))]
            if chance.random() < 0.1:
                tier.retire(key)
            if chance.random() < 0.05:
                tier.shed()
            lease = tier.lease(key) or tier.admit(blocks[key])
            assert tier.used_bytes <= 3 * SIZE
            if lease is not None:
                assert bytes_of(lease.block) == expected[key]
                served += 1
                lease.release()
        return served

    with ThreadPoolExecutor(4) as threads:
        assert sum(threads.map(work, range(4))) > 100  # how many is up to the threads; none or few would be no test
    for key in KEYS:  # after all that every block still comes in, and shows itself
        lease = tier.lease(key) or tier.admit(blocks[key])
        assert lease is not None
        assert bytes_of(lease.block) == expected[key]
        lease.release()
    for key in KEYS:
        tier.retire(key)
    assert (tier.blocks, tier.used_bytes) == (0, 0)
