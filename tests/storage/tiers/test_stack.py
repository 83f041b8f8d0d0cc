"""Tiers above each other: HA-RAG Algorithm 2, and what happens where a tier refuses."""

from collections.abc import Sequence

import numpy as np
import pytest

from storage.blocks import EncodedBlock
from storage.buffers import AlignedBuffers
from storage.placement import RankedPlacement, RecentPlacement, Shares, place_by_shares
from storage.tiers import Destination, MemoryTier, Tier, TierStack
from tests.storage.blocks.builders import make_block
from tests.storage.tiers.builders import KEYS, SIZE, here, is_block, make_tier
from tests.storage.tiers.faulty import (
    Forgetful,
    Full,
    Lost,
    LostAfterFinding,
    LostWhileKeeping,
    Refusing,
    RefusingToSettle,
    Wrapped,
)

NAMES = ("gpu", "pinned", "pageable")


def make_stack(tiers: Sequence[Tier] | None = None, blocks: int = 3) -> TierStack:
    return TierStack(tiers or [make_tier(name, blocks * SIZE) for name in NAMES], RecentPlacement(), AlignedBuffers())


def ask(stack: TierStack, key: str) -> str:
    """One load, as a store does it: from the tiers, else read and kept. Returns where it was found."""
    block = make_block(key, seed=KEYS.index(key))
    lease = stack.find(key, block.header.file_name)
    if lease is None:
        destination = stack.destination(key)
        buffer = destination.take(block.data.nbytes)
        buffer[:] = block.data
        lease = destination.keep(type(block)(block.header, buffer, buffer))
    assert is_block(lease.block, key)
    lease.release()
    return lease.tier


def content(stack: TierStack) -> list[set[str]]:
    """The first letters of the keys in each tier."""
    return [{key[0] for key in here(tier)} for tier in stack.tiers]


def test_a_cold_block_goes_where_it_deserves() -> None:
    stack = make_stack()
    stack.place_by(RankedPlacement(dict(zip(KEYS, ["gpu", "pinned", "pageable", "disk"], strict=False))))
    assert [ask(stack, key) for key in KEYS[:4]] == ["disk"] * 4
    assert content(stack) == [{"a"}, {"b"}, {"c"}]
    assert [ask(stack, key) for key in KEYS[:4]] == ["gpu", "pinned", "pageable", "disk"]


def test_a_block_found_below_is_promoted_and_its_copy_stays() -> None:
    stack = make_stack()
    ask(stack, KEYS[0])
    assert content(stack) == [set(), set(), {"a"}]
    stack.place_by(RankedPlacement({KEYS[0]: "pinned"}))
    assert [ask(stack, KEYS[0]) for _ in range(2)] == ["pageable", "pinned"]
    assert content(stack) == [set(), {"a"}, {"a"}]
    stack.place_by(RankedPlacement({KEYS[0]: "gpu"}))
    assert [ask(stack, KEYS[0]) for _ in range(2)] == ["pinned", "gpu"]
    assert content(stack) == [{"a"}] * 3


def test_a_block_that_cooled_stays_until_it_is_evicted() -> None:
    stack = make_stack(blocks=1)
    stack.place_by(RankedPlacement({KEYS[0]: "gpu"}))
    ask(stack, KEYS[0])
    stack.place_by(RankedPlacement({KEYS[0]: "disk", KEYS[1]: "gpu"}))
    assert ask(stack, KEYS[0]) == "gpu"
    ask(stack, KEYS[1])
    assert content(stack) == [{"b"}, set(), set()], "evicting moved a block down"


def test_new_blocks_take_free_room_only() -> None:
    stack = make_stack(blocks=2)
    stack.place_by(RankedPlacement({KEYS[0]: "pageable"}))
    for key in KEYS[:4]:
        ask(stack, key)
    assert content(stack) == [set(), set(), {"a", "b"}]
    stack.place_by(RankedPlacement({KEYS[0]: "pageable", KEYS[3]: "pageable"}))
    ask(stack, KEYS[3])
    assert content(stack)[2] == {"b", "d"}, "a ranked block evicts the least recently used"


def test_shares_bound_the_tiers() -> None:
    stack = make_stack(blocks=8)
    for key in KEYS:
        ask(stack, key)
    stack.place_by(place_by_shares([(key, SIZE) for key in KEYS], Shares(0.125, 0.25, 0.25)))
    assert content(stack) == [set(), set(), {"g", "h"}]
    for _ in range(2):
        for key in KEYS:
            ask(stack, key)
    assert content(stack) == [{"a"}, {"b", "c"}, {"d", "e"}]
    stack.place_by(RecentPlacement())
    for key in KEYS:
        ask(stack, key)
    assert len(content(stack)[2]) > 2, "the limit was lifted"


@pytest.mark.parametrize(
    ("refusing", "where"),
    [([], "gpu"), (["gpu"], "pinned"), (["gpu", "pinned"], "pageable"), (["gpu", "pinned", "pageable"], None)],
)
def test_refused_memory_degrades_tier_by_tier(refusing: list[str], where: str | None) -> None:
    tiers = [
        MemoryTier(name, 3 * SIZE, Refusing(99)) if name in refusing else make_tier(name, 3 * SIZE) for name in NAMES
    ]
    stack = make_stack(tiers)
    stack.place_by(RankedPlacement({KEYS[0]: "gpu"}))
    assert [ask(stack, KEYS[0]) for _ in range(3)] == ["disk", where or "disk", where or "disk"]
    for name, state in stack.state().items():
        assert state["refusals"] == (name in refusing)
        assert state["reason"] == ("out of memory" if name in refusing else "")
        assert state["blocks"] == (name == where)


def test_a_tier_without_a_budget_is_passed_over() -> None:
    stack = make_stack([make_tier("gpu", 0), make_tier("pinned", SIZE - 1), make_tier("pageable", SIZE)])
    stack.place_by(RankedPlacement({KEYS[0]: "gpu"}))
    assert [ask(stack, KEYS[0]) for _ in range(2)] == ["disk", "pageable"]
    assert all(state["refusals"] == 0 for state in stack.state().values())


@pytest.mark.parametrize("fault", [Forgetful, Full, Lost, LostAfterFinding, LostWhileKeeping])
@pytest.mark.parametrize("place", range(3))
def test_a_failing_tier_costs_time_only(fault: type[Wrapped], place: int) -> None:
    tiers: list[Tier] = [make_tier(name, 2 * SIZE) for name in NAMES]
    tiers[place] = fault(tiers[place])
    stack = make_stack(tiers)
    stack.place_by(RankedPlacement(dict(zip(KEYS, NAMES * 2, strict=False))))
    for _ in range(3):
        for key in KEYS:
            ask(stack, key)
    for key in KEYS:
        newer = make_block(key, generation=1).header.file_name
        assert stack.find(key, newer) is None
        assert stack.where(key) in (*NAMES, "disk")
        stack.retire(key)
    stack.shed()
    counted = {name: state["failures"] for name, state in stack.state().items()}
    assert (counted[NAMES[place]] > 0) == (fault in (Lost, LostAfterFinding, LostWhileKeeping))
    assert all(not count for name, count in counted.items() if name != NAMES[place])
    assert all(tier.blocks == 0 for tier in stack.tiers)


def test_a_lost_tier_is_told_and_breaks_nothing() -> None:
    stack = make_stack([Lost(make_tier("gpu", SIZE)), make_tier("pinned", SIZE)])
    stack.place_by(RankedPlacement({KEYS[0]: "gpu"}))
    assert [ask(stack, KEYS[0]) for _ in range(2)] == ["disk", "pinned"]
    assert stack.where(KEYS[0]) == "pinned"
    assert stack.shed() == SIZE
    told = stack.state()
    assert (told["gpu"]["kind"], told["gpu"]["reason"]) == ("failed", "it raises")
    assert told["gpu"]["failures"] > 5
    assert told["pinned"]["failures"] == 0


def test_where_leaves_no_trace() -> None:
    stack = make_stack()
    ask(stack, KEYS[0])
    assert (stack.where(KEYS[0]), stack.where(KEYS[1])) == ("pageable", "disk")
    assert stack.state()["pageable"]["hits"] == 0


@pytest.mark.parametrize("cause", ["leased", "refused"])
def test_a_block_that_its_tier_does_not_keep_goes_below(cause: str) -> None:
    first = make_tier("gpu", SIZE) if cause == "leased" else MemoryTier("gpu", SIZE, RefusingToSettle())
    stack = make_stack([first, make_tier("pinned", SIZE), make_tier("pageable", SIZE)])
    stack.place_by(RankedPlacement(dict.fromkeys(KEYS, "gpu")))
    leased = stack.tiers[0].admit(make_block(KEYS[1], seed=1)) if cause == "leased" else None
    assert [ask(stack, KEYS[0]) for _ in range(2)] == ["disk", "pinned"]
    assert content(stack)[1:] == [{"a"}, set()]
    if leased is not None:
        leased.release()


def test_a_block_placed_on_no_purpose_evicts_nothing_below_either() -> None:
    pinned = make_tier("pinned", SIZE)
    stack = make_stack([MemoryTier("gpu", SIZE, RefusingToSettle()), pinned])
    held = pinned.admit(make_block(KEYS[1], seed=1))
    assert held is not None
    held.release()

    class ByChance(RankedPlacement):
        def knows(self, key: str) -> bool:
            return False

    stack.place_by(ByChance({KEYS[0]: "gpu"}))
    assert ask(stack, KEYS[0]) == "disk"
    assert content(stack) == [set(), {"b"}]


def test_memory_that_is_refused_to_all_is_made_by_evicting() -> None:
    """A block that no tier keeps still needs memory for as long as it is read."""

    class Scarce(AlignedBuffers):
        def allocate(self, size_bytes: int) -> np.ndarray:
            if stack.tiers[2].blocks:
                raise MemoryError("nothing left")
            return super().allocate(size_bytes)

    tiers = [make_tier(name, 2 * SIZE) for name in NAMES]
    stack = TierStack(tiers, RecentPlacement(), Scarce())
    for key in KEYS[:2]:
        ask(stack, key)
    stack.place_by(RankedPlacement({KEYS[2]: "disk"}))
    assert ask(stack, KEYS[2]) == "disk"
    assert content(stack) == [set()] * 3


def test_another_encoding_is_forgotten_everywhere() -> None:
    stack = make_stack()
    ask(stack, KEYS[0])
    newer = make_block(KEYS[0], generation=1)
    assert stack.find(KEYS[0], newer.header.file_name) is None
    assert content(stack) == [set()] * 3


def test_a_reader_of_an_old_row_keeps_nothing_from_the_new_one() -> None:
    """Both were under way when the block was encoded again; the reader of the older row ends first."""
    stack = make_stack()
    older, newer = make_block(KEYS[0]), make_block(KEYS[0], "int4", generation=1)

    def read(block: EncodedBlock) -> tuple[Destination, EncodedBlock]:
        destination = stack.destination(KEYS[0])
        buffer = destination.take(block.data.nbytes)
        buffer[:] = block.data
        return destination, EncodedBlock(block.header, buffer, buffer)

    for first, last in ((older, newer), (newer, older)):
        reads = [read(first), read(last)]
        for (destination, block), expected in zip(reads, (first, newer), strict=True):
            lease = destination.keep(block)
            assert lease.block.header == expected.header
            assert np.array_equal(lease.block.data, expected.data)
            lease.release()
        assert stack.tiers[2].blocks == 1
        stack.retire(KEYS[0])
        assert stack.tiers[2].used_bytes == 0
