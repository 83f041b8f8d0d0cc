"""Placement by hotness: HA-RAG, Algorithm 2 (section II-C).

The algorithm's listing gives the pinned list the threshold of the pageable one and the other way round; its prose and
its settings (GPU 5%, PIN 5%, PAGE 10%) say what is done here.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from storage.placement.base import NO_LIMITS, Placement

Ranking = Sequence[tuple[str, int]]
"""Keys and sizes in bytes, hottest first."""

_UNKNOWN_TIER = "pageable"
# 0.29 of 100 is 28.999…96 in floating point, and means 29.
_ROUNDING = 1e-9


@dataclass(frozen=True)
class Shares:
    """What part of the chunks each memory tier holds."""

    gpu: float = 0.05
    pinned: float = 0.05
    pageable: float = 0.10

    def __post_init__(self) -> None:
        parts = (self.gpu, self.pinned, self.pageable)
        if min(parts) < 0 or sum(parts) > 1 + _ROUNDING:
            raise ValueError(f"shares {parts} are not parts of one whole: name three of at least 0 that add up to 1")


PAPER_SHARES = Shares()


@dataclass(frozen=True)
class RankedPlacement(Placement):
    """Tiers by key. A key that is in no ranking is new: it deserves `pageable` where there is room to spare."""

    tiers: Mapping[str, str]
    limits: Mapping[str, int] = field(default_factory=lambda: NO_LIMITS)

    def tier_of(self, key: str) -> str:
        return self.tiers.get(key, _UNKNOWN_TIER)

    def knows(self, key: str) -> bool:
        return key in self.tiers

    @property
    def budget_blocks(self) -> Mapping[str, int]:
        return self.limits


def place_by_shares(ranking: Ranking, shares: Shares = PAPER_SHARES, chunks: int | None = None) -> RankedPlacement:
    """The hottest share of the chunks to `gpu`, the next to `pinned`, the next to `pageable`, the rest to `disk`.

    `chunks` is what the shares are parts of where the ranking does not name them all. The tiers are bounded by the
    same numbers of blocks.
    """
    whole = len(ranking) if chunks is None else chunks
    limits = {
        name: math.floor(share * whole + _ROUNDING)
        for name, share in (("gpu", shares.gpu), ("pinned", shares.pinned), ("pageable", shares.pageable))
    }
    tiers = [name for name, count in limits.items() for _ in range(count)]
    tiers += ["disk"] * (len(ranking) - len(tiers))
    return RankedPlacement({key: tier for (key, _), tier in zip(ranking, tiers, strict=False)}, limits)


def place_by_bytes(ranking: Ranking, budgets_bytes: Mapping[str, int]) -> RankedPlacement:
    """Each block, hottest first, to the fastest tier that has room left for it; `disk` where none has.

    `budgets_bytes` names the memory tiers, fastest first.
    """
    left = dict(budgets_bytes)
    tiers = {}
    for key, size_bytes in ranking:
        tier = next((name for name, room in left.items() if room >= size_bytes), "disk")
        tiers[key] = tier
        if tier in left:
            left[tier] -= size_bytes
    return RankedPlacement(tiers)
