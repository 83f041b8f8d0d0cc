"""Opens a document for the parser: a regular file, no link, within limits, its content what its name says."""

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from appliance.errors import DocumentRejected
from appliance.parsing.cleaning import one_line
from appliance.parsing.limits import ParserLimits, check_file_size
from appliance.parsing.sniff import HEAD_BYTES, check_kind

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
    """A checked file. `name` is fit for messages; `descriptor` is open for reading while the context lasts."""

    name: str
    kind: str
    descriptor: int


@contextmanager
def open_document(path: Path, limits: ParserLimits) -> Iterator[OpenDocument]:
    """Open a file after all checks that need no parser. Raises `DocumentRejected`."""
    name = one_line(path.name) or "the file"
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
        yield OpenDocument(name, check_kind(name, head), descriptor)
    finally:
        os.close(descriptor)


def _unreadable(name: str, error: OSError) -> DocumentRejected:
    mend = _MENDS.get(error.errno or 0, f"cannot be read ({error.strerror}): copy it to another disk and try again")
    return DocumentRejected(f"{name} {mend}")
