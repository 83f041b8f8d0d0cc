"""What every tier promises about blocks that are leased while its budget shrinks or another encoding comes."""

from collections.abc import Callable

import pytest

from storage.tiers import Tier
from tests.storage.tiers.builders import KEYS, MEMORIES, SIZE, block_in, here, is_block, keep, make_tier

Make = Callable[[int], Tier]


@pytest.fixture(params=list(MEMORIES))
def make(request: pytest.FixtureRequest) -> Make:
    """A tier for so many blocks."""
    return lambda blocks: make_tier(request.param, blocks * SIZE)


def test_a_smaller_budget_reaches_leased_blocks_once_they_are_released(make: Make) -> None:
    tier = make(3)
    keep(tier, *KEYS[:2])
    leases = [tier.lease(key) for key in KEYS[:2]]
    tier.resize(0)
    for lease in leases:
        assert lease is not None
        lease.release()
    assert (tier.blocks, tier.used_bytes) == (0, 0)


def test_a_lower_limit_reaches_leased_blocks_once_they_are_released(make: Make) -> None:
    tier = make(3)
    keep(tier, *KEYS[:3])
    first, second = tier.lease(KEYS[0]), tier.lease(KEYS[0])
    assert first is not None
    assert second is not None
    last = tier.lease(KEYS[1])
    assert last is not None
    tier.limit_blocks(1)
    assert tier.blocks == 2
    first.release()
    assert tier.holds(KEYS[0]), "another lease of it is out"
    second.release()
    assert here(tier) == {KEYS[1]}
    last.release()
    assert here(tier) == {KEYS[1]}, "within the limit it stays"


def test_a_newer_encoding_wins_and_an_older_does_not(make: Make) -> None:
    tier = make(2)
    older = tier.offer(block_in(tier, KEYS[0]))
    assert older is not None
    newer = tier.offer(block_in(tier, KEYS[0], generation=1))
    assert newer is not None
    assert (newer.block.header.generation, tier.blocks) == (1, 1)
    assert is_block(older.block, KEYS[0])
    older.release()
    late = tier.offer(block_in(tier, KEYS[0]))
    assert late is not None
    assert late.block is newer.block
    for lease in (late, newer):
        lease.release()
    assert (tier.blocks, tier.used_bytes) == (1, SIZE)
