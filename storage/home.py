"""The data folder: one place, mode 0700, that holds everything the appliance keeps."""

import os
from dataclasses import dataclass
from pathlib import Path

from storage.errors import HomeRefused

MARKER = "appliance-home"
_MARKER_TEXT = b"A data folder of the appliance. Everything in this folder is its own and may be deleted by it.\n"
# A catalog is told from another program's database without opening it: SQLite's format keeps these two at fixed places.
_SQLITE_MAGIC = b"SQLite format 3\0"
_APPLICATION_ID_AT = 68
APPLICATION_ID = 0x4B564150
"""Written into the catalog, so that another program's database is told from ours."""

# Made by a file system at the root of a disk, which may be a data folder of its own.
_NOT_COUNTED = frozenset({"lost+found"})


@dataclass(frozen=True)
class Home:
    """Names every file and folder below one data folder; nothing is stored outside it (DESIGN.md §8.7)."""

    root: Path

    @property
    def catalog_file(self) -> Path:
        return self.root / "catalog.db"

    @property
    def lock_file(self) -> Path:
        return self.root / "lock"

    @property
    def documents(self) -> Path:
        """Parsed text, one `<id>.json` a document; the catalog can be rebuilt from it."""
        return self.root / "documents"

    @property
    def blocks(self) -> Path:
        """KV block files, named by key, codec and generation."""
        return self.root / "blocks"

    @property
    def quarantine(self) -> Path:
        """Block files that failed a check, kept for inspection and never read again."""
        return self.root / "quarantine"

    @property
    def temporary(self) -> Path:
        """Files being written; emptied at start."""
        return self.root / "tmp"

    @property
    def uploads(self) -> Path:
        """Files that came through the page (files of a folder are referenced, uploads are copied in)."""
        return self.root / "uploads"

    @property
    def cache(self) -> Path:
        """The page's own temporary files."""
        return self.root / "cache"

    @property
    def marker_file(self) -> Path:
        """Says that the folder is ours: without it (or a catalog of ours) nothing in the folder is touched."""
        return self.root / MARKER

    def create(self) -> None:
        """Make the folders, readable by their owner alone. Safe to repeat.

        Everything that writes or deletes in the folder comes through here first. Raises HomeRefused, before anything
        is changed, for a folder that holds anything and is not ours; OSError.
        """
        self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not self.marker_file.is_file():
            if not self._is_empty() and not self._has_catalog():
                raise HomeRefused(
                    f"{self.root} holds other files and is no data folder of this application: name an empty or a new"
                    f" folder with --home (if it is one, put an empty file {MARKER!r} into it)"
                )
            self._mark()  # before anything else, so that a kill never leaves a folder of ours without it
        self.root.chmod(0o700)
        for folder in (
            self.documents,
            self.blocks,
            self.quarantine,
            self.temporary,
            self.uploads,
            self.cache,
        ):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            folder.chmod(0o700)

    def _is_empty(self) -> bool:
        return all(entry.name in _NOT_COUNTED for entry in self.root.iterdir())

    def _has_catalog(self) -> bool:
        """A catalog of ours, in a data folder that was made before there were markers."""
        try:
            with self.catalog_file.open("rb") as stream:
                head = stream.read(_APPLICATION_ID_AT + 4)
        except (FileNotFoundError, IsADirectoryError):
            return False
        return head.startswith(_SQLITE_MAGIC) and head[_APPLICATION_ID_AT:] == APPLICATION_ID.to_bytes(4, "big")

    def _mark(self) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(self.marker_file, flags, 0o600)
        try:
            os.write(descriptor, _MARKER_TEXT)
        finally:
            os.close(descriptor)
