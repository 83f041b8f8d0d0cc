"""The tiers above each other: looking a block up from the fastest down, and moving it up (HA-RAG Algorithm 2)."""

import threading
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

from storage.buffers import Buffers
from storage.placement import Placement
from storage.tiers.base import DISK, Lease, Tier, TierState
from storage.tiers.destination import Destination
from storage.tiers.guard import Guard

_FAILED = TierState(
    kind="failed", budget_bytes=0, budget_blocks=None, used_bytes=0, blocks=0, hits=0, refusals=0, reason="it raises"
)


class TierStack:
    """`tiers`, fastest first, over the disk. `placement` is a snapshot that is swapped as a whole. Thread-safe.

    A tier that raises is a miss, counted: the block is found below, on disk in the end.
    """

    def __init__(self, tiers: Sequence[Tier], placement: Placement, staging: Buffers) -> None:
        self.tiers = tuple(tiers)
        self._staging = staging
        self._placement = placement
        self._guard = Guard(tiers)
        self._counting = threading.Lock()
        self.retirements = 0

    def place_by(self, placement: Placement) -> None:
        """From now on blocks go where `placement` says. Nothing is moved before it is asked for."""
        for tier in self.tiers:
            self._guard.asked(tier, partial(tier.limit_blocks, placement.budget_blocks.get(tier.name)), None)
        self._placement = placement

    def find(self, key: str, file: str) -> Lease | None:
        """The block from the fastest tier that has it, in its tier if it deserves a faster one; None if in none.

        Another encoding of the block than `file` is forgotten: it was published before that one.
        """
        placement = self._placement
        for depth, tier in enumerate(self.tiers):
            lease = self._guard.asked(tier, partial(tier.lease, key), None)
            if lease is None:
                continue
            if lease.block.header.file_name == file:
                return self._promoted(lease, tier, self._deserved(placement, key, above=depth))
            self._guard.asked(tier, lease.release, None)
            self._guard.asked(tier, partial(tier.retire, key), None)
        return None

    def where(self, key: str) -> str:
        """The name of the tier that `find` would find the block in, or `disk`. Takes no lease."""
        for tier in self.tiers:
            if self._guard.asked(tier, partial(tier.holds, key), False):
                return tier.name
        return DISK

    def lags(self, key: str) -> bool:
        """Whether the block lies in a slower tier than it deserves, or on disk though it deserves one."""
        order = [*(tier.name for tier in self.tiers), DISK]
        return order.index(self._placement.tier_of(key)) < order.index(self.where(key))

    def destination(self, key: str) -> Destination:
        """Memory to read a block into that is in no tier."""
        placement = self._placement
        return Destination(self._deserved(placement, key), placement.knows(key), self._staging, self.shed, self._guard)

    def retire(self, key: str) -> None:
        """Forget the block in every tier, and let whoever loads it meanwhile know by `retirements`."""
        with self._counting:
            self.retirements += 1
        self.forget(key)

    def forget(self, key: str) -> None:
        """Forget the block in every tier. Its row is out of use already, so nobody asks one that fails for it."""
        for tier in self.tiers:
            self._guard.asked(tier, partial(tier.retire, key), None)

    def shed(self) -> int:
        """Evict everything that is not leased; returns the bytes freed."""
        return sum(self._guard.asked(tier, tier.shed, 0) for tier in self.tiers)

    def state(self) -> dict[str, dict[str, Any]]:
        """What each tier is and did (TierState), fastest first, and how often it raised."""
        states = {tier.name: self._guard.asked(tier, tier.state, _FAILED) for tier in self.tiers}
        return {name: {**asdict(state), "failures": self._guard.failures[name]} for name, state in states.items()}

    def _deserved(self, placement: Placement, key: str, above: int | None = None) -> tuple[Tier, ...]:
        """The tier the block deserves and, where that refuses, those below; only tiers above that depth."""
        wanted = placement.tier_of(key)
        if wanted == DISK:
            return ()
        return self.tiers[[tier.name for tier in self.tiers].index(wanted) : above]

    def _promoted(self, lease: Lease, holder: Tier, better: Sequence[Tier]) -> Lease:
        """The block's copy in the best of these tiers that takes it, else `lease`. The copy below stays."""
        for tier in better:
            copy = self._guard.asked(tier, partial(tier.admit, lease.block), None)
            if copy is not None:
                self._guard.asked(holder, lease.release, None)
                return Lease(copy.block, lease.tier, copy.release)
        return lease
