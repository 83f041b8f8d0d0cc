"""A file that holds room back, because deleting on a full disk needs some room in the log first."""

import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

RESERVE_BYTES = 4 * 1024 * 1024


def _free_bytes(folder: Path) -> int:
    return shutil.disk_usage(folder).free


class Reserve:
    """Spent when the disk is full, refilled when it is not."""

    def __init__(self, file: Path, free_bytes: Callable[[Path], int] = _free_bytes) -> None:
        self._file = file
        self._free_bytes = free_bytes

    def spend_when_full(self) -> None:
        """Give the room back where less than that is free. Never fails: deleting is tried in any case."""
        with suppress(OSError):
            if self._free_bytes(self._file.parent) < RESERVE_BYTES:
                self._file.unlink(missing_ok=True)

    def refill(self) -> None:
        """Hold the room back again where twice as much is free. Never fails: it is a precaution only."""
        with suppress(OSError):
            if self._file.exists() or self._free_bytes(self._file.parent) < 2 * RESERVE_BYTES:
                return
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
            descriptor = os.open(self._file, flags, 0o600)
            try:
                os.posix_fallocate(descriptor, 0, RESERVE_BYTES)
            finally:
                os.close(descriptor)
