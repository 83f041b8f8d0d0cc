"""Publishing a file so that a crash leaves either the whole of it or nothing.

The order is: write a temporary file on the same file system, sync it, close it, rename it, sync the folder
(research/reliability.md §3). A catalog row that says `ready` may only be committed after `publish_bytes` returned.
"""

import errno
import os
import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from storage.errors import DiskFull, StorageError

_FILE_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT})
_NOT_SUPPORTED = frozenset({errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP})
# How much is written, and how much is left to the disk, before a write that yields lets others go first.
PIECE_BYTES = 1 << 20
SYNCED_BYTES = 8 << 20


class WriteFailed(StorageError):
    """The disk refused a write, a sync, a rename or a removal; nothing may say `ready` about that file."""


@dataclass(frozen=True)
class FileOperations:
    """The system calls of this module, so that a test can make any one of them fail."""

    open: Callable[[Path, int, int], int] = os.open
    preallocate: Callable[[int, int, int], None] = os.posix_fallocate
    write: Callable[[int, memoryview], int] = os.write
    fsync: Callable[[int], None] = os.fsync
    close: Callable[[int], None] = os.close
    rename: Callable[[Path, Path], None] = os.rename
    unlink: Callable[[Path], None] = os.unlink


SYSTEM = FileOperations()


def publish_bytes(
    target: Path,
    parts: Sequence[bytes | bytearray | memoryview],
    temporary: Path,
    *,
    sync_directory: bool = True,
    pause: Callable[[], None] | None = None,
    before_rename: Callable[[], object] | None = None,
    operations: FileOperations = SYSTEM,
) -> None:
    """Write `parts` one after another to `target`, mode 0600, replacing it as a whole or leaving it alone.

    `temporary` is a folder on the file system of `target`. With `sync_directory=False` the caller promises to call
    `sync_folder(target.parent)` before any row says `ready`, so that a batch pays for one folder sync. Between pieces
    of 1 MiB `pause` is called, and may wait for whoever needs the disk more; whatever it raises ends the write.
    `before_rename` is called once all is written and synced. Raises DiskFull or WriteFailed; the temporary file is
    removed. A failed sync is never tried again on that file, because the kernel forgets what it could not write.
    """
    views = [memoryview(part).cast("B") for part in parts]
    draft = temporary / f"{secrets.token_hex(16)}.tmp"
    try:
        _write_draft(draft, views, pause, operations)
        if before_rename is not None:
            before_rename()
        operations.rename(draft, target)
    except BaseException as error:
        with suppress(OSError):
            operations.unlink(draft)
        if isinstance(error, OSError):
            raise _explained(error, target) from error
        raise
    if sync_directory:
        sync_folder(target.parent, operations=operations)


def sync_folder(folder: Path, *, operations: FileOperations = SYSTEM) -> None:
    """Make the names in `folder` durable. File systems that cannot sync a folder are let be; else WriteFailed."""
    try:
        descriptor = operations.open(folder, os.O_RDONLY | os.O_DIRECTORY, 0)
        try:
            operations.fsync(descriptor)
        except OSError as error:
            if error.errno not in _NOT_SUPPORTED:
                raise
        finally:
            operations.close(descriptor)
    except OSError as error:
        raise _explained(error, folder) from error


def retire_file(path: Path, *, sync_directory: bool = True, operations: FileOperations = SYSTEM) -> None:
    """Remove `path` durably. One that is gone already is fine, so that a delete can be repeated after a crash."""
    try:
        operations.unlink(path)
    except FileNotFoundError:
        pass
    except OSError as error:
        raise _explained(error, path) from error
    if sync_directory and path.parent.is_dir():
        sync_folder(path.parent, operations=operations)


def _write_draft(
    draft: Path, views: Sequence[memoryview], pause: Callable[[], None] | None, operations: FileOperations
) -> None:
    descriptor = operations.open(draft, _FILE_FLAGS, 0o600)
    try:
        _preallocate(descriptor, sum(view.nbytes for view in views), operations)
        unsynced_bytes = 0
        for number, piece in enumerate(views if pause is None else _pieces(views)):
            if pause is not None and number:
                if unsynced_bytes >= SYNCED_BYTES:
                    operations.fsync(descriptor)
                    unsynced_bytes = 0
                pause()
            _write(descriptor, piece, operations)
            unsynced_bytes += piece.nbytes
        operations.fsync(descriptor)
    except BaseException:
        with suppress(OSError):  # the first error is the one to tell
            operations.close(descriptor)
        raise
    operations.close(descriptor)


def _pieces(views: Sequence[memoryview]) -> Iterator[memoryview]:
    for view in views:
        for begin in range(0, view.nbytes, PIECE_BYTES):
            yield view[begin : begin + PIECE_BYTES]


def _write(descriptor: int, view: memoryview, operations: FileOperations) -> None:
    while view.nbytes:
        written_bytes = operations.write(descriptor, view)
        if written_bytes <= 0:
            raise OSError(errno.EIO, "the file system accepted no bytes")
        view = view[written_bytes:]


def _preallocate(descriptor: int, size_bytes: int, operations: FileOperations) -> None:
    """Ask for the room before writing, so that a full disk is noticed early."""
    if size_bytes == 0:
        return
    try:
        operations.preallocate(descriptor, 0, size_bytes)
    except OSError as error:
        if error.errno not in _NOT_SUPPORTED:
            raise


def _explained(error: OSError, path: Path) -> StorageError:
    if error.errno in _NO_ROOM:
        return DiskFull(f"no room left to write {path}: free some space on this disk and try again")
    reason = os.strerror(error.errno) if error.errno else str(error)
    return WriteFailed(f"{path} cannot be written ({reason}): check the disk and its permissions, then try again")
