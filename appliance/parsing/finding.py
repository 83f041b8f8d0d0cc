"""Which files of a folder count as documents, and why the others do not."""

import os
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from appliance.parsing.cleaning import one_line
from appliance.parsing.sniff import kind_of, known_extensions

_HIDDEN = "is hidden: name it itself to have it read"
_LONGEST_PATH = 1000


@dataclass(frozen=True)
class FoundFiles:
    """What was found below the given paths, each list sorted, with a line for every file left out: its path, the
    reason, the mend.

    `skipped`: files inside a folder that are simply no documents (hidden, unknown type, link). `refused`: what the
    user named and cannot have, a folder that cannot be looked into, a document with an impossible name; these are
    errors.
    """

    accepted: tuple[Path, ...]
    skipped: tuple[tuple[Path, str], ...]
    refused: tuple[tuple[Path, str], ...]


def find_documents(paths: Sequence[Path]) -> FoundFiles:
    """Look through files and folders, folders with all that is below them. A file named twice is found once."""
    accepted: set[Path] = set()
    skipped: dict[Path, str] = {}
    refused: dict[Path, str] = {}
    for given in paths:
        path = Path(os.path.abspath(given))  # noqa: PTH100  # `resolve` would follow the link we are about to refuse
        try:
            # The user may name a folder by a link, but every link below it stays closed.
            mode = path.lstat().st_mode
            is_folder = path.is_dir()
        except (OSError, ValueError) as error:
            refused[given] = _why_missing(given, error)
            continue
        if is_folder:
            for found, reason, is_error in _below(path):
                if reason is None:
                    accepted.add(found)
                else:
                    (refused if is_error else skipped)[found] = reason
            continue
        reason = _why_not(path, mode) or _why_unnameable(path)
        if reason is None:
            accepted.add(path)
        else:
            refused[path] = reason
    left = sorted((path, reason) for path, reason in skipped.items() if path not in accepted and path not in refused)
    return FoundFiles(tuple(sorted(accepted)), tuple(left), tuple(sorted(refused.items())))


def _below(folder: Path) -> Iterator[tuple[Path, str | None, bool]]:
    """Yield every file below a folder: its path, why it is left out (None if it is not), and if that is an error."""
    failed: list[OSError] = []
    for parent, folders, files in os.walk(folder, onerror=failed.append, followlinks=False):
        for name in list(folders):
            path = Path(parent, name)
            link = "is a symbolic link: name the folder it points to"
            reason = _HIDDEN if name.startswith(".") else link if path.is_symlink() else None
            if reason is not None:
                folders.remove(name)
                yield path, _line(path, reason), False
        for name in files:
            path = Path(parent, name)
            if name.startswith(("~$", ".")):
                lock_file = "is the lock file of an open document: close the document to be rid of it"
                yield path, _line(path, _HIDDEN if name.startswith(".") else lock_file), False
                continue
            try:
                reason = _why_not(path, path.lstat().st_mode)
            except OSError as error:
                yield path, _why_missing(path, error), True
                continue
            unnameable = None if reason else _why_unnameable(path)
            yield path, reason or unnameable, unnameable is not None
    for failure in failed:
        path = Path(failure.filename)
        yield path, _line(path, f"cannot be looked into ({failure.strerror}): change its permissions"), True


def _why_not(path: Path, mode: int) -> str | None:
    """Why a file is no document, None if it is one."""
    if stat.S_ISLNK(mode):
        return _line(path, "is a symbolic link: name the file it points to")
    if not stat.S_ISREG(mode):
        return _line(path, "is not a regular file: only files can be documents")
    if kind_of(path.name) is None:
        return _line(path, f"is of an unknown type: these are read: {known_extensions()}")
    return None


def _why_unnameable(path: Path) -> str | None:
    """Why a document cannot go in under its name, None if it can. It is one that the user expects to find again."""
    try:
        str(path).encode()
    except UnicodeEncodeError:
        return _line(path, "has a name that is not valid UTF-8: rename it and ingest it again")
    return None


def _why_missing(path: Path, error: OSError | ValueError) -> str:
    if isinstance(error, FileNotFoundError):
        return _line(path, "does not exist: check the path")
    return _line(path, f"cannot be reached ({getattr(error, 'strerror', None) or error}): check the path")


def _line(path: Path, reason: str) -> str:
    """The reason with the path before it, which may hold anything but must stay on the line."""
    return f"{one_line(str(path), _LONGEST_PATH)} {reason}"
