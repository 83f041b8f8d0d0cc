"""HA-RAG Algorithm 2's lists, by shares and by bytes."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.placement import RecentPlacement, Shares, place_by_bytes, place_by_shares
from storage.placement.by_rank import RankedPlacement

ORDER = ["gpu", "pinned", "pageable", "disk"]


def ranking(count: int, size_bytes: int = 10) -> list[tuple[str, int]]:
    return [(f"key {number}", size_bytes) for number in range(count)]


def tiers(placement: RankedPlacement, count: int) -> list[str]:
    return [placement.tier_of(f"key {number}") for number in range(count)]


def test_the_papers_shares() -> None:
    """Pinned gets its own threshold and pageable its own, not each other's as the listing has it."""
    placement = place_by_shares(ranking(100))
    assert tiers(placement, 100) == ["gpu"] * 5 + ["pinned"] * 5 + ["pageable"] * 10 + ["disk"] * 80
    assert placement.budget_blocks == {"gpu": 5, "pinned": 5, "pageable": 10}


def test_shares_may_be_of_more_than_was_ranked() -> None:
    placement = place_by_shares(ranking(7), Shares(0.05, 0.05, 0.1), chunks=60)
    assert tiers(placement, 7) == ["gpu"] * 3 + ["pinned"] * 3 + ["pageable"]
    assert placement.budget_blocks == {"gpu": 3, "pinned": 3, "pageable": 6}


def test_a_share_means_what_it_says() -> None:
    """0.29 times 100 is a little less than 29 in floating point."""
    assert place_by_shares(ranking(100), Shares(0.29, 0, 0.71)).budget_blocks == {
        "gpu": 29,
        "pinned": 0,
        "pageable": 71,
    }


@pytest.mark.parametrize("shares", [(-0.1, 0.5, 0.5), (0.5, 0.5, 0.1)])
def test_shares_that_are_no_parts_are_refused(shares: tuple[float, float, float]) -> None:
    with pytest.raises(ValueError, match="add up to 1"):
        Shares(*shares)


def test_bytes_are_filled_from_the_hottest() -> None:
    placement = place_by_bytes(ranking(8), {"gpu": 25, "pinned": 0, "pageable": 40})
    assert tiers(placement, 8) == ["gpu"] * 2 + ["pageable"] * 4 + ["disk"] * 2
    assert placement.budget_blocks == {}
    assert set(tiers(place_by_bytes(ranking(8), {"gpu": 0, "pageable": 80}), 8)) == {"pageable"}


def test_a_small_block_takes_what_a_large_one_leaves() -> None:
    placement = place_by_bytes([("large", 30), ("small", 5)], {"gpu": 20, "pageable": 30})
    assert (placement.tier_of("large"), placement.tier_of("small")) == ("pageable", "gpu")


@pytest.mark.parametrize("placement", [place_by_shares(ranking(3)), place_by_bytes(ranking(3), {"gpu": 1})])
def test_a_new_block_takes_free_room_only(placement: RankedPlacement) -> None:
    assert placement.tier_of("new") == "pageable"
    assert not placement.knows("new")
    assert placement.knows("key 2")


def test_before_any_hotness_everything_is_kept_for_a_while() -> None:
    placement = RecentPlacement()
    assert placement.tier_of("any") == "pageable"
    assert placement.knows("any")
    assert placement.budget_blocks == {}


@given(st.integers(0, 200), st.tuples(*[st.integers(0, 30)] * 3))
def test_the_hotter_is_never_in_the_slower_tier(count: int, percent: tuple[int, int, int]) -> None:
    placement = place_by_shares(ranking(count), Shares(*(part / 100 for part in percent)))
    found = tiers(placement, count)
    assert all(ORDER.index(hot) <= ORDER.index(cold) for hot, cold in pairwise(found))
    for tier, part in zip(ORDER, percent, strict=False):
        assert found.count(tier) == count * part // 100 == placement.budget_blocks[tier]
