"""Algorithm 1 of HA-RAG: shares of all chunks, ties, scores of zero, and no flapping at a border."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.codec_pair import CodecPair
from storage.profiles import classes_of, fixed_profile, paper_profile

PAPER = paper_profile()


def ranked(count: int) -> list[tuple[str, float]]:
    """`k0` the hottest."""
    return [(f"k{number}", float(count - number)) for number in range(count)]


def codecs(entries: list[tuple[str, float]], total: int, present: dict[str, str] | None = None) -> dict[str, str]:
    return {key: each.codec.name for key, each in classes_of(PAPER, entries, total, present).items()}


def test_shares_are_of_all_chunks() -> None:
    found = codecs(ranked(100), 100)
    assert Counter(found.values()) == {"int8t": 10, "e4m3": 10, "e5m2": 10, "gse8": 70}
    assert [found[f"k{number}"] for number in (9, 10, 19, 20, 29, 30)] == [
        *("int8t", "e4m3", "e4m3", "e5m2", "e5m2", "gse8")
    ]
    assert Counter(codecs(ranked(100), 1000).values()) == {"int8t": 100}


def test_ends_are_floored_as_in_the_paper() -> None:
    assert Counter(codecs(ranked(19), 19).values()) == {"int8t": 1, "e4m3": 2, "e5m2": 2, "gse8": 14}
    assert Counter(codecs(ranked(9), 9).values()) == {"e4m3": 1, "e5m2": 1, "gse8": 7}
    tenths = paper_profile((0.29, 0.28, 0.13, 0.3))  # 0.29 * 100 is a little less than 29 in floating point
    found = Counter(each.name for each in classes_of(tenths, ranked(100), 100).values())
    assert found == {"hot": 29, "warm": 28, "cool": 13, "cold": 30}


def test_what_nobody_asked_for_is_coldest() -> None:
    entries = [("a", 3.0), ("b", 1e-9), *((f"n{number}", 0.0) for number in range(8))]
    found = codecs(entries, 20)
    assert (found["a"], found["b"]) == ("int8t", "int8t")
    assert {found[f"n{number}"] for number in range(8)} == {"gse8"}
    assert codecs([("a", 0.0)], 20, {"a": "int8t"}) == {"a": "gse8"}


def test_equal_scores_keep_their_order() -> None:
    entries = [("late", 1.0), ("first", 2.0), ("second", 2.0), ("third", 2.0)]
    found = codecs(entries, 10)
    assert found == {"first": "int8t", "second": "e4m3", "third": "e5m2", "late": "gse8"}
    assert codecs([("x", 1.0), ("y", 1.0)], 10) == {"x": "int8t", "y": "e4m3"}


def test_a_block_at_a_border_stays_where_it_is() -> None:
    """Classes of 100, so a margin of 10 ranks at the borders 100, 200 and 300."""
    entries, stays = ranked(1000), {f"k{number}": "int8t" for number in range(100, 200)}
    found = codecs(entries, 1000, stays)
    assert [found[f"k{number}"] for number in (100, 109, 110, 150)] == ["int8t", "int8t", "e4m3", "e4m3"]
    stays = {f"k{number}": "gse8" for number in range(1000)}
    found = codecs(entries, 1000, stays)
    assert [number for number in range(300) if found[f"k{number}"] == "gse8"] == list(range(290, 300))
    assert classes_of(PAPER, entries, 1000, stays, margin=0)["k299"].codec.name == "e5m2"
    wide = classes_of(PAPER, entries, 1000, stays, margin=0.5)
    assert [wide[f"k{number}"].name for number in (249, 250)] == ["cool", "cold"]


def test_a_small_collection_has_no_room_for_a_margin() -> None:
    """Of ten chunks the hottest is in the first class, whatever it was."""
    for codec in ("int8t", "e4m3", "e5m2", "gse8"):
        stored = {f"k{number}": codec for number in range(10)}
        assert codecs(ranked(10), 10, stored) == codecs(ranked(10), 10)


def test_a_block_of_no_class_goes_where_it_belongs() -> None:
    assert codecs(ranked(10), 10, {f"k{number}": "bf16" for number in range(10)}) == codecs(ranked(10), 10)


def test_nothing_flaps() -> None:
    """Two blocks that change places at every question are encoded once."""
    present = codecs(ranked(200), 200)
    changes = 0
    for turn in range(20):
        order = [f"k{number}" for number in range(200)]
        order[19], order[20] = (order[20], order[19]) if turn % 2 else (order[19], order[20])
        now = codecs([(key, 200.0 - rank) for rank, key in enumerate(order)], 200, present)
        changes += sum(now[key] != present[key] for key in now)
        present = now
    assert changes == 0


@given(
    scores=st.lists(st.floats(0, 100), max_size=60),
    extra=st.integers(0, 40),
    stored=st.lists(st.sampled_from(["int8t", "e4m3", "e5m2", "gse8", "int8"]), min_size=60, max_size=60),
)
def test_every_key_has_a_class_and_staying_put_is_stable(scores: list[float], extra: int, stored: list[str]) -> None:
    entries = [(f"k{number}", score) for number, score in enumerate(scores)]
    present = {key: stored[number] for number, (key, _) in enumerate(entries)}
    first = codecs(entries, len(entries) + extra, present)
    assert first.keys() == present.keys()
    assert all(first[key] == "gse8" for key, score in entries if score == 0)
    assert codecs(entries, len(entries) + extra, first) == first


@pytest.mark.parametrize("total", [0, 1, 3])
def test_tiny_collections(total: int) -> None:
    fixed = fixed_profile(CodecPair("int8", "int8"))
    assert len(classes_of(fixed, ranked(total), total)) == total
    assert all(each.name == "cold" for each in classes_of(fixed, ranked(total), total).values())
