"""Page-aligned memory that is used again: a fresh allocation costs a page fault every 4 KiB, more than the read."""

import threading
from collections import defaultdict

import numpy as np

from storage.blocks.layout import ALIGNMENT_BYTES


class AlignedBuffers:
    """Hands out uint8 arrays that begin on a page, and takes them back. Thread-safe, bounded by `spare_bytes`."""

    def __init__(self, spare_bytes: int = 256 << 20) -> None:
        self._spare_bytes = spare_bytes
        self._held_bytes = 0
        self._spare: dict[int, list[np.ndarray]] = defaultdict(list)
        self._lock = threading.Lock()

    def take(self, size_bytes: int) -> np.ndarray:
        """An array of exactly so many bytes; its contents are undefined."""
        rounded = -(-size_bytes // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
        with self._lock:
            if self._spare[rounded]:
                self._held_bytes -= rounded
                return self._spare[rounded].pop()[:size_bytes]
        raw = np.empty(rounded + ALIGNMENT_BYTES, dtype=np.uint8)
        begin = -raw.ctypes.data % ALIGNMENT_BYTES
        return raw[begin : begin + rounded][:size_bytes]

    def give(self, buffer: np.ndarray) -> None:
        """Take a buffer back. Nobody may read it afterwards. Dropped when enough spare memory is held."""
        rounded = -(-buffer.nbytes // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
        if buffer.nbytes != rounded or buffer.ctypes.data % ALIGNMENT_BYTES:
            return
        with self._lock:
            if self._held_bytes + rounded <= self._spare_bytes:
                self._held_bytes += rounded
                self._spare[rounded].append(buffer)
