"""The catalog: all its parts over one connection, and how it is opened, checked, set aside and closed."""

from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from storage.catalog.blocks import Blocks
from storage.catalog.collections import Collections
from storage.catalog.connection import Connection
from storage.catalog.counters import Counters
from storage.catalog.deletion import Deletion
from storage.catalog.documents import Documents
from storage.catalog.hotness import Hotness
from storage.catalog.neighbours import Neighbours
from storage.catalog.reserve import Reserve
from storage.catalog.sources import Sources
from storage.catalog.tokens import Tokens
from storage.catalog.unclaimed import UnclaimedBlocks
from storage.catalog.vectors import VectorRows
from storage.catalog.words import Words
from storage.durable import sync_folder
from storage.errors import CatalogDamaged, StorageError
from storage.home import Home


class CatalogMissing(StorageError):
    """Nothing has been stored in this data folder yet."""


class Catalog(
    Collections,
    Documents,
    Sources,
    Deletion,
    Words,
    VectorRows,
    Tokens,
    Blocks,
    Neighbours,
    UnclaimedBlocks,
    Hotness,
    Counters,
):
    """What the appliance knows: collections, documents, chunks, words, vectors, token ids, blocks, hotness, counts."""

    def __init__(self, connection: Connection, reserve: Reserve | None = None) -> None:
        super().__init__(connection)
        self._reserve = reserve

    @classmethod
    def open(cls, home: Home, read_only: bool = False, *, rebuild: bool = False) -> Self:
        """Open the catalog of `home`; a writer makes it where there is none, a reader never writes.

        A folder that cannot be written to is read as it stands (`Connection`).

        Raises CatalogDamaged (also where the catalog is gone but documents are stored, unless this is the rebuild),
        CatalogMissing for a reader of an empty data folder, and the errors of `base`.
        Only the process that holds the HomeLock may write.
        """
        file = home.catalog_file
        if not file.exists() or not file.stat().st_size:
            if not rebuild and any(home.documents.glob("*.json")):
                raise CatalogDamaged(
                    f"{file} is gone although documents are stored: run `appliance verify --rebuild` to make it again"
                )
            if read_only:
                raise CatalogMissing(f"{home.root} holds no documents yet: ingest some first")
        if read_only:
            return cls(Connection(file, read_only=True))
        home.create()
        catalog = cls(Connection(file), Reserve(home.root / "reserve"))
        catalog.finish_erasing()
        catalog._refill()
        return catalog

    def begin_delete(self, document_id: str) -> None:
        """As Deletion says; on a full disk the reserve makes the room that deleting needs."""
        self._make_room()
        super().begin_delete(document_id)

    def finish_delete(self, *document_ids: str) -> bool:
        """As Deletion says; on a full disk the reserve makes the room that deleting needs."""
        self._make_room()
        erased = super().finish_delete(*document_ids)
        self._refill()
        return erased

    def begin_block_delete(self, keys: Sequence[str]) -> None:
        """As Blocks says; on a full disk the reserve makes the room that deleting needs."""
        self._make_room()
        super().begin_block_delete(keys)

    def checkpoint(self) -> bool:
        """Empty the log into the file. False where a reader of another process kept that from happening."""
        return self._connection.checkpoint()

    def faults(self) -> list[str]:
        """What SQLite's full check finds wrong, one line each; empty when all is well. Slow on a large catalog."""
        return self._connection.faults()

    def close(self) -> None:
        """Empty the log and close. Safe to repeat."""
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _make_room(self) -> None:
        if self._reserve is not None:
            self._reserve.spend_when_full()

    def _refill(self) -> None:
        if self._reserve is not None:
            self._reserve.refill()


def set_catalog_aside(home: Home) -> list[Path]:
    """Move a damaged catalog and its log to the quarantine, for `Catalog.open(home, rebuild=True)`; the new paths.

    The log goes first and is never left behind: it would be read into the new file. Only under the HomeLock.
    """
    home.create()
    taken = sum(1 for _ in home.quarantine.glob("catalog-*.db"))
    moved: list[Path] = []
    for ending in ("-wal", "-shm", ""):
        old = home.catalog_file.with_name(home.catalog_file.name + ending)
        new = home.quarantine / f"catalog-{taken + 1}.db{ending}"
        if old.exists():
            old.rename(new)
            moved.append(new)
    sync_folder(home.quarantine)
    sync_folder(home.root)
    return moved
