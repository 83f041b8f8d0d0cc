"""One process writes to a data folder: the others are refused with its number."""

import fcntl
import os
from contextlib import suppress
from types import TracebackType
from typing import Self

from storage.errors import HomeBusy, StorageError
from storage.home import Home


class HomeLock:
    """An advisory lock on the data folder. The kernel releases it when the process ends, however it ends.

    The file stays: unlinking it would let two processes hold locks on two files of one name.
    """

    def __init__(self, home: Home) -> None:
        self._home = home
        self._descriptor: int | None = None

    def acquire(self) -> None:
        """Take the lock and write our process number into it. Repeating is fine.

        Raises HomeBusy, naming the process that holds it, or StorageError where the file system has no locks.
        """
        if self._descriptor is not None:
            return
        self._home.create()
        file = self._home.lock_file
        descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            holder = _holder(descriptor)
            os.close(descriptor)
            raise HomeBusy(
                f"{self._home.root} is in use by {holder}: stop it, or name another data folder with --home"
            ) from error
        except OSError as error:
            os.close(descriptor)
            raise StorageError(f"{file} cannot be locked ({error.strerror}): use a local disk") from error
        self._descriptor = descriptor
        with suppress(OSError):  # a full disk must not keep anyone from deleting
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)

    def release(self) -> None:
        """Give the lock back. Repeating is fine."""
        if self._descriptor is None:
            return
        descriptor, self._descriptor = self._descriptor, None
        os.close(descriptor)

    def __enter__(self) -> Self:
        self.acquire()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


def _holder(descriptor: int) -> str:
    number = os.pread(descriptor, 32, 0).decode("ascii", "replace").strip()
    return f"process {number}" if number.isdecimal() else "another process"
