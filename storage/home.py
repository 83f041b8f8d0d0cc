"""The data folder: one place, mode 0700, that holds everything the appliance keeps."""

from dataclasses import dataclass
from pathlib import Path


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

    def create(self) -> None:
        """Make the folders, readable by their owner alone. Safe to repeat. Raises OSError."""
        for folder in (
            self.root,
            self.documents,
            self.blocks,
            self.quarantine,
            self.temporary,
            self.uploads,
            self.cache,
        ):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            folder.chmod(0o700)
