"""What this computer can move at most: memory and disk, measured, best of several."""

import os
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch

from models.executor import LOADER_THREADS
from storage.buffers import AlignedBuffers

_MEMORY_SAMPLE_BYTES = 1 << 30
_ROUNDS = 3


def memory_read_bytes_per_s() -> float:
    """Bytes a second that torch's threads read from memory: the sum of an array far larger than any cache."""
    sample = torch.ones(_MEMORY_SAMPLE_BYTES // 4, dtype=torch.float32)
    return max(_MEMORY_SAMPLE_BYTES / _seconds(lambda: float(sample.sum())) for _ in range(_ROUNDS))


def disk_read_bytes_per_s(files: Sequence[Path]) -> float:
    """Bytes a second of these files read whole, past the page cache, by as many threads as the loader has."""
    buffers = AlignedBuffers()
    total = sum(file.stat().st_size for file in files)

    def read(file: Path) -> None:
        size = file.stat().st_size
        buffer = buffers.take(size)
        try:
            descriptor = os.open(file, os.O_RDONLY | os.O_DIRECT)
        except OSError:
            descriptor = os.open(file, os.O_RDONLY)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        try:
            os.preadv(descriptor, [buffer.data], 0)
        finally:
            os.close(descriptor)
            buffers.give(buffer)

    with ThreadPoolExecutor(LOADER_THREADS) as pool:
        return max(total / _seconds(lambda: list(pool.map(read, files))) for _ in range(_ROUNDS))


def drop_from_page_cache(files: Sequence[Path]) -> None:
    """Make the next read of these files come from the disk even where O_DIRECT is refused."""
    for file in files:
        descriptor = os.open(file, os.O_RDONLY)
        try:
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)


def _seconds(action: object) -> float:
    if not callable(action):
        raise TypeError("nothing to time")
    began = time.perf_counter()
    action()
    return time.perf_counter() - began
