"""Which block is in which class of hotness (HA-RAG, Algorithm 1)."""

import math
from collections.abc import Mapping, Sequence

from storage.profiles.base import HotnessClass, Profile

DEFAULT_MARGIN = 0.1
"""How far past a border a block may move and stay, as a share of the smaller of the two classes there."""


def classes_of(
    profile: Profile,
    ranked: Sequence[tuple[str, float]],
    total: int,
    present: Mapping[str, str] | None = None,
    margin: float = DEFAULT_MARGIN,
) -> dict[str, HotnessClass]:
    """The class of each block of `ranked`, (key, score) hottest first; `total` counts all chunks, asked for or not.

    Algorithm 1: the first floor(share * total) are in the first class, and so on; equal scores keep their order; a
    score of 0 is always in the coldest class. `present` names the codec a block has now: within `margin` of a border
    it stays in a class that has this codec, so that a block at a border is not encoded again with every question.
    """
    ends = _ends(profile, total)
    by_heat = sorted(ranked, key=lambda entry: -entry[1])  # stable
    coldest = len(profile.classes) - 1
    found: dict[str, HotnessClass] = {}
    for rank, (key, score) in enumerate(by_heat):
        number = coldest
        if score > 0:
            number = next((number for number, end in enumerate(ends) if rank < end), coldest)
            codec = None if present is None else present.get(key)
            if codec is not None and codec != profile.classes[number].codec.name:
                number = _kept(profile, ends, rank, codec, margin, number)
        found[key] = profile.classes[number]
    return found


def _ends(profile: Profile, total: int) -> list[int]:
    """The rank at which each class ends; the last takes all that is left."""
    ends, shares = [], 0.0
    for each in profile.classes:
        shares += each.share
        ends.append(math.floor(round(shares * total, 6)))  # 0.29 * 100 is 28.999…
    ends[-1] = total
    return ends


def _kept(profile: Profile, ends: Sequence[int], rank: int, codec: str, margin: float, deserved: int) -> int:
    """The class of the codec a block has now, where the rank is still within the margin of it; else `deserved`."""
    begins = [0, *ends[:-1]]
    sizes = [end - begin for begin, end in zip(begins, ends, strict=True)]
    near = []
    for number, each in enumerate(profile.classes):
        if each.codec.name != codec or not sizes[number]:
            continue
        step = 1 if number < deserved else -1  # the neighbour on the side of the rank
        slack = math.floor(margin * min(sizes[number], sizes[number + step]))
        if begins[number] - slack <= rank < ends[number] + slack:
            near.append(number)
    return min(near, key=lambda number: abs(number - deserved), default=deserved)
