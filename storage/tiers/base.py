"""The contract of a tier: a place blocks are served from.

Disk is home, upper tiers hold copies, so evicting is free and losing a tier loses nothing. Every tier holds a block's
encoded bytes as they lie in the file, so an answer does not depend on the tier. Looking up takes a lease; a leased
block's memory stays as it is until the lease is released, whatever is offered, evicted or retired meanwhile.
Every method may be called from several threads, and none of them raises where memory is refused.
"""

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from storage.blocks import EncodedBlock
from storage.errors import StorageError

GPU, PINNED, PAGEABLE, DISK = "gpu", "pinned", "pageable", "disk"
MEMORY_TIERS = (GPU, PINNED, PAGEABLE)
"""Fastest first."""


class LeaseExpired(StorageError):
    """A lease was held for longer than leases last; the block is asked for again."""


def _never_expires() -> bool:
    return True


class Lease:
    """A block that stays where it is until `release` is called, exactly once: after copies from it are complete.

    `tier` is where it was found. An expired lease refuses to hand out its block (LeaseExpired); the memory stays all
    the same until it is released.
    """

    __slots__ = ("_block", "_is_valid", "release", "tier")

    def __init__(
        self,
        block: EncodedBlock,
        tier: str,
        release: Callable[[], None],
        is_valid: Callable[[], bool] = _never_expires,
    ) -> None:
        self._block = block
        self.tier = tier
        self.release = release
        self._is_valid = is_valid

    @property
    def block(self) -> EncodedBlock:
        if not self._is_valid():
            raise LeaseExpired(f"the lease of block {self._block.header.file_name} has expired: load the block again")
        return self._block


def once(action: Callable[[], None]) -> Callable[[], None]:
    """`action` as a lease's release. A second release is the caller's defect and must not free another's memory."""
    first = threading.Lock()

    def release() -> None:
        if not first.acquire(blocking=False):
            raise RuntimeError("a lease was released twice")
        action()

    return release


@dataclass(frozen=True)
class TierState:
    """What a tier is and did. `kind` is the memory behind it; `reason` is why memory was refused last, or empty."""

    kind: str
    budget_bytes: int
    budget_blocks: int | None
    used_bytes: int
    blocks: int
    hits: int
    refusals: int
    reason: str


class Tier(ABC):
    """Serves copies of blocks by key."""

    name: str

    @abstractmethod
    def lease(self, key: str) -> Lease | None:
        """The block if it is here, kept here until released; None if not. Never blocks on a disk."""

    @abstractmethod
    def take(self, size_bytes: int) -> np.ndarray | None:
        """Host memory to read a block for this tier into, or None where it can never be kept or memory is refused.

        Afterwards the block is offered, or the memory given back.
        """

    @abstractmethod
    def give(self, buffer: np.ndarray) -> None:
        """Take back what `take` handed out."""

    @abstractmethod
    def offer(self, block: EncodedBlock, evict: bool = True) -> Lease | None:
        """Keep a block that lies in memory of `take` and lease it, or return None and keep nothing (no room).

        A block of this key that is here already wins, unless it is an older encoding: its lease is returned, the
        offered memory is given back. Without `evict` only room that is free is used.
        """

    @abstractmethod
    def admit(self, block: EncodedBlock, evict: bool = True) -> Lease | None:
        """As `offer`, for a block that lies elsewhere, in host memory: it is copied."""

    @abstractmethod
    def retire(self, key: str) -> None:
        """Forget the block: no new lease; its memory is freed with the last lease. Unknown keys are fine."""

    @abstractmethod
    def holds(self, key: str) -> bool:
        """Whether a lookup would find the block. Nothing is leased, and nothing counts as used."""

    @abstractmethod
    def resize(self, budget_bytes: int) -> None:
        """From now on hold at most so many bytes; what is over is evicted, leased blocks once they are released."""

    @abstractmethod
    def limit_blocks(self, blocks: int | None) -> None:
        """Hold at most so many blocks besides the budget in bytes, as `resize` does; None lifts the limit."""

    @abstractmethod
    def shed(self) -> int:
        """Evict everything that is not leased; returns the bytes freed."""

    @abstractmethod
    def state(self) -> TierState:
        """What `appliance status` shows."""

    @property
    @abstractmethod
    def used_bytes(self) -> int:
        """Memory held, leased and retired blocks included."""

    @property
    @abstractmethod
    def blocks(self) -> int:
        """Blocks that a lookup would find."""
