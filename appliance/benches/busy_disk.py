"""A disk that somebody else keeps busy: processes that read and write the same disk past the page cache.

Processes, not threads: those would take the interpreter's lock from the very code that is measured. They end with the
process that began them, killed or not.
"""

import os
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Self

from appliance.benches.base import BenchRefused

_FILE_BYTES = 64 << 20
_PIECE_BYTES = 1 << 20
_READERS = 2
_READING = """
import mmap, os, sys
piece, whole, number = int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
buffer = mmap.mmap(-1, piece)
try:
    file = os.open(sys.argv[1], os.O_RDONLY | os.O_DIRECT)
except OSError:
    file = os.open(sys.argv[1], os.O_RDONLY)
print("begun", flush=True)
offset = number * piece
while os.getppid() == int(sys.argv[5]):
    os.preadv(file, [buffer], offset)
    offset = (offset + 7 * piece) % whole
"""
_WRITING = """
import os, sys
piece, whole = int(sys.argv[2]), int(sys.argv[3])
content = os.urandom(piece)
file = os.open(sys.argv[1], os.O_WRONLY)
print("begun", flush=True)
offset = 0
while os.getppid() == int(sys.argv[5]):
    os.pwrite(file, content, offset)
    os.fsync(file)
    offset = (offset + piece) % whole
"""


class BusyDisk:
    """While entered, two processes read and one writes and syncs in `folder`, as fast as the disk lets them."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "busy"
        self._children: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Self:
        with self._file.open("wb") as file:
            for _ in range(_FILE_BYTES // _PIECE_BYTES):
                file.write(os.urandom(4096) * (_PIECE_BYTES // 4096))
            file.flush()
            os.fsync(file.fileno())
        programs = [_READING] * _READERS + [_WRITING]
        sizes = (str(_PIECE_BYTES), str(_FILE_BYTES))
        self._children = [
            subprocess.Popen(
                [sys.executable, "-I", "-c", program, str(self._file), *sizes, str(number), str(os.getpid())],
                stdout=subprocess.PIPE,
            )
            for number, program in enumerate(programs)
        ]
        for child in self._children:
            if child.stdout is None or child.stdout.readline() != b"begun\n":
                self._end()
                raise BenchRefused(f"{self._file} cannot be read and written: name another --home")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()
        self._file.unlink()

    def _end(self) -> None:
        for child in self._children:
            child.kill()
        for child in self._children:
            child.communicate()
        self._children = []
