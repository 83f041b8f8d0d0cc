"""Page-aligned memory that is used again: a fresh allocation costs a page fault every 4 KiB, more than the read."""

import mmap
import threading
from collections import OrderedDict
from contextlib import suppress
from typing import Protocol

import numpy as np

from storage.slabs import HUGE_PAGE_BYTES, Slabs, map_huge

PAGE_BYTES = 4096
# Blocks differ by a few tokens: sizes are rounded up by at most a sixteenth, so that their memory fits each other.
_STEPS = 16
# Smaller ones are not worth a share of a huge page.
_LEAST_CUT_BYTES = 64 << 10
# Linux 5.14; Python names it from 3.13 on.
_MADV_POPULATE_WRITE = 23


class Buffers(Protocol):
    """Where a reader gets memory from."""

    def take(self, size_bytes: int) -> np.ndarray:
        """uint8 `[size_bytes]` that begins on a page; its contents are undefined. Raises MemoryError."""

    def give(self, buffer: np.ndarray) -> None:
        """Take a buffer back. Nobody may read it afterwards."""


class AlignedBuffers:
    """Hands out uint8 arrays that begin on a page, and takes them back. Thread-safe, bounded by `spare_bytes`."""

    def __init__(self, spare_bytes: int = 256 << 20) -> None:
        self._spare_bytes = spare_bytes
        self._held_bytes = 0
        self._spare: OrderedDict[int, list[np.ndarray]] = OrderedDict()  # by size, the one used longest ago first
        self._lock = threading.Lock()
        self._slabs = Slabs()

    def take(self, size_bytes: int) -> np.ndarray:
        """An array of exactly so many bytes; its contents are undefined. Raises MemoryError."""
        capacity = capacity_bytes(size_bytes)
        with self._lock:
            spare = self._used(capacity)
            if spare:
                self._held_bytes -= capacity
                return spare.pop()[:size_bytes]
        try:
            return self.allocate(capacity)[:size_bytes]
        except MemoryError:
            if not self.drop_spare():
                raise
        return self.allocate(capacity)[:size_bytes]

    def give(self, buffer: np.ndarray) -> None:
        """Take a buffer back. Nobody may read it afterwards.

        Where enough spare memory is held, that of the sizes used longest ago goes; this one where there is no other.
        """
        whole, capacity = buffer.base, capacity_bytes(buffer.nbytes)
        if not isinstance(whole, np.ndarray) or whole.nbytes != capacity or whole.ctypes.data != buffer.ctypes.data:
            return
        dropped: list[np.ndarray] = []  # freed after the lock
        with self._lock:
            spare = self._used(capacity)
            while self._held_bytes + capacity > self._spare_bytes >= capacity and len(self._spare) > 1:
                size = next(iter(self._spare))
                if self._spare[size]:
                    dropped.append(self._spare[size].pop())
                    self._held_bytes -= size
                else:
                    del self._spare[size]
            if self._held_bytes + capacity <= self._spare_bytes:
                self._held_bytes += capacity
                spare.append(whole)

    def drop_spare(self) -> int:
        """Give the memory that nobody uses back to the system; returns the bytes."""
        with self._lock:
            dropped, self._held_bytes = self._held_bytes, 0
            self._spare.clear()
        return dropped

    def _used(self, capacity: int) -> list[np.ndarray]:
        """The spare memory of this size, which is noted as the one used last."""
        spare = self._spare.setdefault(capacity, [])
        self._spare.move_to_end(capacity)
        return spare

    def allocate(self, size_bytes: int) -> np.ndarray:
        """Fresh memory, uint8 `[size_bytes]`, on a page. Raises MemoryError."""
        cut = _LEAST_CUT_BYTES <= size_bytes < HUGE_PAGE_BYTES
        return self._slabs.cut(size_bytes) if cut else map_aligned(size_bytes)


def map_aligned(size_bytes: int) -> np.ndarray:
    """Memory of its own mapping, in huge pages as far as it fills them. Raises MemoryError.

    A disk writes into huge pages with fewer, larger requests: 2.6 MB of a file were there in 1.2 ms instead of 2.0.
    """
    if size_bytes < HUGE_PAGE_BYTES:
        try:
            return np.frombuffer(mmap.mmap(-1, size_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS), np.uint8)
        except OSError as error:
            raise MemoryError(f"{size_bytes} bytes of memory cannot be mapped") from error
    mapping, begin = map_huge(size_bytes)
    rest_bytes = size_bytes % HUGE_PAGE_BYTES
    if rest_bytes:
        with suppress(OSError):  # an older kernel only serves more slowly
            mapping.madvise(_MADV_POPULATE_WRITE, begin + size_bytes - rest_bytes, rest_bytes)
    return np.frombuffer(mapping, np.uint8, size_bytes, begin)


def capacity_bytes(size_bytes: int) -> int:
    """What is allocated for so many bytes: whole pages, at most a sixteenth more than asked for."""
    pages = max(1, -(-size_bytes // PAGE_BYTES))
    step = max(1, (1 << (pages.bit_length() - 1)) // _STEPS)
    return -(-pages // step) * step * PAGE_BYTES
