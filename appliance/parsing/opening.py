"""Opens a document for the parser: a regular file, no link, within limits, its content what its name says."""

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from appliance.errors import DocumentRejected
from appliance.parsing.cleaning import LONGEST_TITLE, one_line
from appliance.parsing.limits import ParserLimits, check_file_size
from appliance.parsing.sniff import HEAD_BYTES, check_kind

# What a write moves. `st_ctime` is there because nobody can set it back.
_WRITTEN = ("st_size", "st_mtime_ns", "st_ctime_ns")
_MENDS = {
    errno.ENOENT: "does not exist: check the path",
    errno.ENOTDIR: "does not exist: check the path",
    errno.EACCES: "may not be read by you: change its permissions and ingest it again",
    errno.EPERM: "may not be read by you: change its permissions and ingest it again",
    errno.ELOOP: "is a symbolic link: name the file it points to",
    errno.ENAMETOOLONG: "has too long a name: rename it and ingest it again",
    errno.ENXIO: "is not a regular file: only files can be documents",
}


@dataclass(frozen=True)
class OpenDocument:
    """A checked file. `name` is fit for messages; `descriptor` is open for reading while the context lasts.

    Whoever reads it twice (to hash it, to parse it) asks `check_unchanged` afterwards.
    """

    name: str
    kind: str
    descriptor: int
    status: os.stat_result

    def check_unchanged(self) -> None:
        """Raise DocumentRejected if the file was written to since it was opened."""
        now = os.fstat(self.descriptor)
        if any(getattr(now, field) != getattr(self.status, field) for field in _WRITTEN):
            raise DocumentRejected(f"{self.name} changed while it was read: ingest it again")


@contextmanager
def open_document(path: Path, limits: ParserLimits) -> Iterator[OpenDocument]:
    """Open a file after all checks that need no parser. Raises `DocumentRejected`."""
    name = _shown_name(path)
    try:
        # Not blocking: a named pipe would otherwise wait for a writer that never comes.
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except ValueError:
        raise DocumentRejected(f"{name} is not a possible file name: check the path") from None
    except OSError as error:
        raise _unreadable(name, error) from None
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise DocumentRejected(f"{name} is not a regular file: only files can be documents")
        check_file_size(name, status.st_size, limits)
        try:
            head = os.pread(descriptor, HEAD_BYTES, 0)
        except OSError as error:
            raise _unreadable(name, error) from None
        yield OpenDocument(name, check_kind(path.name, head, name), descriptor, status)
    finally:
        os.close(descriptor)


def _shown_name(path: Path) -> str:
    """The file's name on one line; a long one is shortened before its extension, which says what it is."""
    suffix = one_line(path.suffix)
    if len(suffix) >= LONGEST_TITLE // 2:
        return one_line(path.name)
    stem = one_line(path.stem, LONGEST_TITLE - len(suffix))
    return f"{stem}{suffix}" or "the file"


def _unreadable(name: str, error: OSError) -> DocumentRejected:
    mend = _MENDS.get(error.errno or 0, f"cannot be read ({error.strerror}): copy it to another disk and try again")
    return DocumentRejected(f"{name} {mend}")
