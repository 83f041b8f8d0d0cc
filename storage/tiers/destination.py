"""Where a block that is read from disk goes: the memory of the tier it deserves, or of one below, or none."""

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from storage.blocks import EncodedBlock
from storage.buffers import Buffers
from storage.tiers.base import DISK, Lease, Tier, once
from storage.tiers.guard import Guard


class Destination(Buffers):
    """Memory for one block, and what becomes of it. Used by one thread.

    A tier that refuses, memory or the block read into it, hands on to the next of `tiers`; `staging` serves a block
    that no tier keeps. `shed` is called where even that is refused, and then `staging` is asked once more.
    """

    def __init__(
        self, tiers: Sequence[Tier], evict: bool, staging: Buffers, shed: Callable[[], int], guard: Guard
    ) -> None:
        self._tiers = tiers
        self._evict = evict
        self._staging = staging
        self._shed = shed
        self._guard = guard
        self._depth: int | None = None

    def take(self, size_bytes: int) -> np.ndarray:
        """Raises MemoryError where nothing is left to evict either."""
        for depth, tier in enumerate(self._tiers):
            buffer = self._guard.asked(tier, partial(tier.take, size_bytes), None)
            if buffer is not None:
                self._depth = depth
                return buffer
        self._depth = None
        try:
            return self._staging.take(size_bytes)
        except MemoryError:
            self._shed()
            return self._staging.take(size_bytes)

    def give(self, buffer: np.ndarray) -> None:
        if self._depth is None:
            self._staging.give(buffer)
        else:
            tier = self._tiers[self._depth]
            self._guard.asked(tier, partial(tier.give, buffer), None)

    def keep(self, block: EncodedBlock) -> Lease:
        """Offer the block that was read to its tier, a copy to those below where that refuses.

        A block that none keeps lives as long as its lease.
        """
        unkept = Lease(block, DISK, once(lambda: self.drop(block)))
        if self._depth is None:
            return unkept
        tier, *below = self._tiers[self._depth :]
        lost = Lease(block, DISK, once(lambda: None))  # it raised and may hold the memory: that is never used again
        kept = self._guard.asked(tier, partial(tier.offer, block, self._evict), lost)
        if kept is not None and kept is not lost:
            return Lease(kept.block, DISK, kept.release)
        for lower in below:
            copy = self._guard.asked(lower, partial(lower.admit, block, self._evict), None)
            if copy is not None:
                (kept or unkept).release()
                return Lease(copy.block, DISK, copy.release)
        return kept or unkept

    def drop(self, block: EncodedBlock) -> None:
        """Give a block's memory back."""
        if block.buffer is not None:
            self.give(block.buffer)
