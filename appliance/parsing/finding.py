"""Which files of a folder count as documents, and why the others do not."""

import os
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from appliance.parsing.sniff import kind_of, known_extensions


@dataclass(frozen=True)
class FoundFiles:
    """What was found below the given paths, each list sorted, with the reason for every file left out.

    `skipped`: files inside a folder that are simply no documents (hidden, unknown type, link). `refused`: what the
    user named and cannot have, or a folder that cannot be looked into; these are errors.
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
            refused[given] = _why_missing(error)
            continue
        if is_folder:
            for found, reason, is_error in _below(path):
                if reason is None:
                    accepted.add(found)
                else:
                    (refused if is_error else skipped)[found] = reason
            continue
        reason = _why_not(path, mode)
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
            reason = "it is hidden" if name.startswith(".") else "it is a symbolic link" if path.is_symlink() else None
            if reason is not None:
                folders.remove(name)
                yield path, reason, False
        for name in files:
            path = Path(parent, name)
            if name.startswith(("~$", ".")):
                yield path, "it is hidden" if name.startswith(".") else "it is the lock file of an open document", False
                continue
            try:
                yield path, _why_not(path, path.lstat().st_mode), False
            except OSError as error:
                yield path, _why_missing(error), True
    for failure in failed:
        yield Path(failure.filename), f"it cannot be looked into ({failure.strerror}): change its permissions", True


def _why_not(path: Path, mode: int) -> str | None:
    """Why a file cannot be a document, None if it can."""
    if stat.S_ISLNK(mode):
        return "it is a symbolic link: name the file it points to"
    if not stat.S_ISREG(mode):
        return "it is not a regular file"
    if kind_of(path.name) is None:
        return f"its type is unknown: these are read: {known_extensions()}"
    try:
        str(path).encode()
    except UnicodeEncodeError:
        return "its name is not valid UTF-8: rename it"
    return None


def _why_missing(error: OSError | ValueError) -> str:
    if isinstance(error, FileNotFoundError):
        return "it does not exist: check the path"
    return f"it cannot be reached ({getattr(error, 'strerror', None) or error}): check the path"
