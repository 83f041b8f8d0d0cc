"""Where a block that is read from disk goes: the memory of the tier it deserves, or of one below, or none."""

from collections.abc import Callable, Sequence

import numpy as np

from storage.blocks import EncodedBlock
from storage.buffers import Buffers
from storage.tiers.base import DISK, Lease, Tier, once

# What a tier may raise although it should not: a lost device, a defect. It costs that tier only.
FAILURES = (RuntimeError, MemoryError, OSError)


class Destination(Buffers):
    """Memory for one block, and what becomes of it. Used by one thread.

    A tier that refuses hands on to the next of `tiers`; `staging` serves a block that no tier keeps. `shed` is called
    where even that is refused, and then `staging` is asked once more.
    """

    def __init__(
        self,
        tiers: Sequence[Tier],
        evict: bool,
        staging: Buffers,
        shed: Callable[[], int],
        failed: Callable[[Tier], None],
    ) -> None:
        self._tiers = tiers
        self._evict = evict
        self._staging = staging
        self._shed = shed
        self._failed = failed
        self._tier: Tier | None = None

    def take(self, size_bytes: int) -> np.ndarray:
        """Raises MemoryError where nothing is left to evict either."""
        self._tier = None
        for tier in self._tiers:
            try:
                buffer = tier.take(size_bytes)
            except FAILURES:
                self._failed(tier)
                continue
            if buffer is not None:
                self._tier = tier
                return buffer
        try:
            return self._staging.take(size_bytes)
        except MemoryError:
            self._shed()
            return self._staging.take(size_bytes)

    def give(self, buffer: np.ndarray) -> None:
        (self._tier or self._staging).give(buffer)

    def keep(self, block: EncodedBlock) -> Lease:
        """Offer the block that was read to its tier; a block that is not kept lives as long as its lease."""
        tier = self._tier
        if tier is not None:
            try:
                kept = tier.offer(block, self._evict)
            except FAILURES:
                self._failed(tier)
                return Lease(block, DISK, once(lambda: None))  # the tier may hold its memory: never used again
            if kept is not None:
                return Lease(kept.block, DISK, kept.release)
        return Lease(block, DISK, once(lambda: self.drop(block)))

    def drop(self, block: EncodedBlock) -> None:
        """Give a block's memory back."""
        if block.buffer is not None:
            self.give(block.buffer)
