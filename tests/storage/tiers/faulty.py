"""Tiers and memories that fail, for the tests of what stands on them. Losing a tier must lose nothing but time."""

import threading
import time
from contextlib import suppress

import numpy as np

from storage.blocks import EncodedBlock
from storage.buffers import AlignedBuffers
from storage.tiers import HostMemory, Lease, Tier, TierState


class Wrapped(Tier):
    """A tier behind another; faults override one method."""

    def __init__(self, inner: Tier) -> None:
        self.inner, self.name = inner, inner.name

    def lease(self, key: str) -> Lease | None:
        return self.inner.lease(key)

    def take(self, size_bytes: int) -> np.ndarray | None:
        return self.inner.take(size_bytes)

    def give(self, buffer: np.ndarray) -> None:
        self.inner.give(buffer)

    def offer(self, block: EncodedBlock, evict: bool = True) -> Lease | None:
        return self.inner.offer(block, evict)

    def admit(self, block: EncodedBlock, evict: bool = True) -> Lease | None:
        return self.inner.admit(block, evict)

    def holds(self, key: str) -> bool:
        return self.inner.holds(key)

    def resize(self, budget_bytes: int) -> None:
        self.inner.resize(budget_bytes)

    def retire(self, key: str) -> None:
        self.inner.retire(key)

    def limit_blocks(self, blocks: int | None) -> None:
        self.inner.limit_blocks(blocks)

    def shed(self) -> int:
        return self.inner.shed()

    def state(self) -> TierState:
        return self.inner.state()

    @property
    def used_bytes(self) -> int:
        return self.inner.used_bytes

    @property
    def blocks(self) -> int:
        return self.inner.blocks


class Forgetful(Wrapped):
    """Keeps blocks and finds none."""

    def lease(self, key: str) -> Lease | None:
        return None


class Full(Wrapped):
    """Never has room."""

    def offer(self, block: EncodedBlock, evict: bool = True) -> Lease | None:
        return None

    def admit(self, block: EncodedBlock, evict: bool = True) -> Lease | None:
        return None


class Slow(Wrapped):
    """Lets others in between looking up and keeping."""

    def take(self, size_bytes: int) -> np.ndarray | None:
        time.sleep(0.002)
        return self.inner.take(size_bytes)


class Lost(Wrapped):
    """A device that is gone: every call raises."""

    def lease(self, key: str) -> Lease | None:
        raise RuntimeError("device lost")

    def take(self, size_bytes: int) -> np.ndarray | None:
        raise RuntimeError("device lost")

    def give(self, buffer: np.ndarray) -> None:
        raise RuntimeError("device lost")

    def offer(self, block: EncodedBlock, evict: bool = True) -> Lease | None:
        raise RuntimeError("device lost")

    def admit(self, block: EncodedBlock, evict: bool = True) -> Lease | None:
        raise RuntimeError("device lost")

    def holds(self, key: str) -> bool:
        raise RuntimeError("device lost")

    def resize(self, budget_bytes: int) -> None:
        raise RuntimeError("device lost")

    def retire(self, key: str) -> None:
        raise RuntimeError("device lost")

    def limit_blocks(self, blocks: int | None) -> None:
        raise RuntimeError("device lost")

    def shed(self) -> int:
        raise RuntimeError("device lost")

    def state(self) -> TierState:
        raise RuntimeError("device lost")


class LostAfterFinding(Wrapped):
    """Finds blocks, and raises when it is to forget one."""

    def retire(self, key: str) -> None:
        raise RuntimeError("device lost")


class LostWhileKeeping(Wrapped):
    """Raises after the block was kept."""

    def offer(self, block: EncodedBlock, evict: bool = True) -> Lease | None:
        self.inner.offer(block, evict)
        raise RuntimeError("device lost")


class Refusing(HostMemory):
    """Memory that is refused so many times, then given."""

    def __init__(self, times: int, refusal: Exception | None = None) -> None:
        super().__init__(AlignedBuffers())
        self.times = times
        self.asked = 0
        self.refusal = refusal or MemoryError("out of memory\nTried to allocate 2 GiB")

    def take(self, size_bytes: int) -> np.ndarray:
        self.asked += 1
        if self.asked <= self.times:
            raise self.refusal
        return super().take(size_bytes)


class RefusingToSettle(HostMemory):
    """A device without room: blocks can be read for it, and not moved to it."""

    def __init__(self) -> None:
        super().__init__(AlignedBuffers())

    def settle(self, block: EncodedBlock) -> EncodedBlock:
        raise RuntimeError("CUDA out of memory")


class SlowToSettle(HostMemory):
    """A device to which blocks move slowly, `meeting` at a time."""

    def __init__(self, meeting: threading.Barrier) -> None:
        super().__init__(AlignedBuffers())
        self._meeting = meeting

    def settle(self, block: EncodedBlock) -> EncodedBlock:
        with suppress(threading.BrokenBarrierError):
            self._meeting.wait()
        return block
