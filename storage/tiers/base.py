"""The contract of a tier: a place blocks are served from.

Disk is home, upper tiers hold copies, so evicting is free and losing a tier loses nothing. Looking up takes a lease;
a leased block's memory stays as it is until the lease is released, whatever is offered, evicted or retired meanwhile.
Every method may be called from several threads.
"""

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

from storage.blocks import EncodedBlock


@dataclass(frozen=True)
class Lease:
    """A block that stays where it is until `release` is called, exactly once."""

    block: EncodedBlock
    tier: str
    release: Callable[[], None]


def once(action: Callable[[], None]) -> Callable[[], None]:
    """`action` as a lease's release. A second release is the caller's defect and must not free another's memory."""
    first = threading.Lock()

    def release() -> None:
        if not first.acquire(blocking=False):
            raise RuntimeError("a lease was released twice")
        action()

    return release


class Tier(ABC):
    """Serves copies of blocks by key."""

    name: str

    @abstractmethod
    def lease(self, key: str) -> Lease | None:
        """The block if it is here, kept here until released; None if not. Never blocks on a disk."""

    @abstractmethod
    def offer(self, block: EncodedBlock) -> Lease | None:
        """Keep the block and its memory and lease it, or return None and keep nothing (no room, or not worth it).

        A block of this key that is here already wins: its lease is returned, the offered memory is given back.
        """

    @abstractmethod
    def retire(self, key: str) -> None:
        """Forget the block: no new lease; its memory is freed with the last lease. Unknown keys are fine."""

    @property
    @abstractmethod
    def used_bytes(self) -> int:
        """Memory held, leased and retired blocks included."""

    @property
    @abstractmethod
    def blocks(self) -> int:
        """Blocks that a lookup would find."""
