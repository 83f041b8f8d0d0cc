"""The tiers above each other: looking a block up from the fastest down, and moving it up (HA-RAG Algorithm 2)."""

import threading
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from storage.buffers import Buffers
from storage.placement import Placement
from storage.tiers.base import DISK, Lease, Tier
from storage.tiers.destination import FAILURES, Destination


class TierStack:
    """`tiers`, fastest first, over the disk. `placement` is a snapshot that is swapped as a whole. Thread-safe.

    A tier that raises is a miss, counted: the block is found below, on disk in the end.
    """

    def __init__(self, tiers: Sequence[Tier], placement: Placement, staging: Buffers) -> None:
        self.tiers = tuple(tiers)
        self._staging = staging
        self._placement = placement
        self._failures = dict.fromkeys([tier.name for tier in tiers], 0)
        self._counting = threading.Lock()
        self.retirements = 0

    def place_by(self, placement: Placement) -> None:
        """From now on blocks go where `placement` says. Nothing is moved before it is asked for."""
        for tier in self.tiers:
            tier.limit_blocks(placement.budget_blocks.get(tier.name))
        self._placement = placement

    def find(self, key: str, file: str) -> Lease | None:
        """The block from the fastest tier that has it, in its tier if it deserves a faster one; None if in none.

        Another encoding of the block than `file` is forgotten: it was published before that one.
        """
        placement = self._placement
        for depth, tier in enumerate(self.tiers):
            try:
                lease = tier.lease(key)
            except FAILURES:
                self._failed(tier)
                continue
            if lease is None:
                continue
            if lease.block.header.file_name == file:
                return self._promoted(lease, self._deserved(placement, key, above=depth))
            lease.release()
            tier.retire(key)
        return None

    def destination(self, key: str) -> Destination:
        """Memory to read a block into that is in no tier."""
        placement = self._placement
        return Destination(self._deserved(placement, key), placement.knows(key), self._staging, self.shed, self._failed)

    def retire(self, key: str) -> None:
        """Forget the block in every tier, and let whoever loads it meanwhile know by `retirements`."""
        with self._counting:
            self.retirements += 1
        self.forget(key)

    def forget(self, key: str) -> None:
        """Forget the block in every tier."""
        for tier in self.tiers:
            try:
                tier.retire(key)
            except FAILURES:  # its row is out of use already, so nobody asks for it
                self._failed(tier)

    def shed(self) -> int:
        """Evict everything that is not leased; returns the bytes freed."""
        return sum(tier.shed() for tier in self.tiers)

    def state(self) -> dict[str, dict[str, Any]]:
        """What each tier is and did (TierState), fastest first, and how often it raised."""
        return {tier.name: {**asdict(tier.state()), "failures": self._failures[tier.name]} for tier in self.tiers}

    def _deserved(self, placement: Placement, key: str, above: int | None = None) -> tuple[Tier, ...]:
        """The tier the block deserves and, where that refuses, those below; only tiers above that depth."""
        wanted = placement.tier_of(key)
        if wanted == DISK:
            return ()
        return self.tiers[[tier.name for tier in self.tiers].index(wanted) : above]

    def _promoted(self, lease: Lease, better: Sequence[Tier]) -> Lease:
        """The block's copy in the best of these tiers that takes it, else `lease`. The copy below stays."""
        for tier in better:
            try:
                copy = tier.admit(lease.block)
            except FAILURES:
                self._failed(tier)
                continue
            if copy is not None:
                lease.release()
                return Lease(copy.block, lease.tier, copy.release)
        return lease

    def _failed(self, tier: Tier) -> None:
        with self._counting:
            self._failures[tier.name] += 1
