"""A disk that somebody else keeps busy: threads that read and write the same disk past the page cache."""

import os
import threading
from pathlib import Path
from types import TracebackType
from typing import Self

from storage.buffers import AlignedBuffers

_FILE_BYTES = 64 << 20
_PIECE_BYTES = 1 << 20
_READERS = 3


class BusyDisk:
    """While entered, three threads read and one writes and syncs in `folder`, as fast as the disk lets them."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "busy"
        self._end = threading.Event()
        self._threads: list[threading.Thread] = []

    def __enter__(self) -> Self:
        with self._file.open("wb") as file:
            for _ in range(_FILE_BYTES // _PIECE_BYTES):
                file.write(os.urandom(4096) * (_PIECE_BYTES // 4096))
            file.flush()
            os.fsync(file.fileno())
        self._end.clear()
        actions = [self._read] * _READERS + [self._write]
        self._threads = [threading.Thread(target=action, args=(n,), daemon=True) for n, action in enumerate(actions)]
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end.set()
        for thread in self._threads:
            thread.join()
        self._file.unlink()

    def _read(self, number: int) -> None:
        buffer = AlignedBuffers().take(_PIECE_BYTES)
        try:
            descriptor = os.open(self._file, os.O_RDONLY | os.O_DIRECT)
        except OSError:
            descriptor = os.open(self._file, os.O_RDONLY)
        offset = number * _PIECE_BYTES
        try:
            while not self._end.is_set():
                os.preadv(descriptor, [buffer.data], offset)
                offset = (offset + 7 * _PIECE_BYTES) % _FILE_BYTES
        finally:
            os.close(descriptor)

    def _write(self, number: int) -> None:
        piece = os.urandom(_PIECE_BYTES)
        descriptor = os.open(self._file, os.O_WRONLY)
        offset = 0
        try:
            while not self._end.is_set():
                os.pwrite(descriptor, piece, offset)
                os.fsync(descriptor)
                offset = (offset + _PIECE_BYTES) % _FILE_BYTES
        finally:
            os.close(descriptor)
