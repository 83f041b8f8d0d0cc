"""Sources: which path held which document when it was last looked at."""

# ruff: noqa: S608 - only our own column names, conditions and question marks are put into statements

import sqlite3

from storage.catalog.attending import retire_attending
from storage.catalog.base import SourceRow
from storage.catalog.section import Section
from storage.catalog.vectors import bump_version
from storage.errors import UnknownRow

_COLUMNS = "collection_id, path, document_id, size_bytes, mtime_ns"


class Sources(Section):
    """The part of the catalog that knows paths."""

    def attach_source(
        self, collection_id: int, path: str, document_id: str, size_bytes: int, mtime_ns: int
    ) -> list[str]:
        """Say that `path` holds a document that is here already. Returns the ids that are now `deleting`.

        Raises UnknownRow where there is no such ready document in the collection.
        """
        with self._connection.write() as sqlite:
            ready = "SELECT 1 FROM documents WHERE id = ? AND collection_id = ? AND state = 'ready'"
            if sqlite.execute(ready, (document_id, collection_id)).fetchone() is None:
                raise UnknownRow(f"there is no document {document_id!r} in this collection: ingest {path} again")
            return set_source(sqlite, collection_id, path, document_id, size_bytes, mtime_ns)

    def detach_source(self, collection_id: int, path: str) -> list[str]:
        """Forget a path. Returns the ids that are now `deleting`, because no path holds them any more."""
        with self._connection.write() as sqlite:
            row = sqlite.execute(
                "DELETE FROM sources WHERE collection_id = ? AND path = ? RETURNING document_id", (collection_id, path)
            ).fetchone()
            return [] if row is None else _retire_without_source(sqlite, row[0])

    def source(self, collection_id: int, path: str) -> SourceRow | None:
        """What the path held, if it was ever looked at."""
        with self._connection.read() as sqlite:
            row = sqlite.execute(
                f"SELECT {_COLUMNS} FROM sources WHERE collection_id = ? AND path = ?", (collection_id, path)
            ).fetchone()
        return SourceRow(*row) if row else None

    def sources_of(self, document_id: str) -> list[SourceRow]:
        """Every path that holds the document, in order."""
        with self._connection.read() as sqlite:
            rows = sqlite.execute(
                f"SELECT {_COLUMNS} FROM sources WHERE document_id = ? ORDER BY path", (document_id,)
            ).fetchall()
        return [SourceRow(*row) for row in rows]


def set_source(
    sqlite: sqlite3.Connection, collection_id: int, path: str, document_id: str, size_bytes: int, mtime_ns: int
) -> list[str]:
    """Point `path` at a document, within the caller's transaction; retire the one it leaves without any path."""
    before = sqlite.execute(
        "SELECT document_id FROM sources WHERE collection_id = ? AND path = ?", (collection_id, path)
    ).fetchone()
    sqlite.execute(
        f"INSERT INTO sources ({_COLUMNS}) VALUES (?, ?, ?, ?, ?) ON CONFLICT (collection_id, path) DO UPDATE SET"
        " document_id = excluded.document_id, size_bytes = excluded.size_bytes, mtime_ns = excluded.mtime_ns",
        (collection_id, path, document_id, size_bytes, mtime_ns),
    )
    return [] if before is None or before[0] == document_id else _retire_without_source(sqlite, before[0])


def retire(sqlite: sqlite3.Connection, document_id: str) -> None:
    """Take a document, its paths, the blocks that it alone uses and those that saw it out of every reader's sight."""
    sqlite.execute("DELETE FROM sources WHERE document_id = ?", (document_id,))
    row = sqlite.execute(
        "UPDATE documents SET state = 'deleting' WHERE id = ? RETURNING collection_id", (document_id,)
    ).fetchone()
    bump_version(sqlite, row[0])
    retire_attending(sqlite, document_id)
    sqlite.execute(
        "UPDATE blocks SET state = 'deleting' WHERE key IN (SELECT mine.block_key FROM block_chunks AS mine"
        " JOIN chunks ON chunks.id = mine.chunk_id WHERE chunks.document_id = ?) AND NOT EXISTS (SELECT 1"
        " FROM block_chunks AS other JOIN chunks ON chunks.id = other.chunk_id"
        " JOIN documents ON documents.id = chunks.document_id"
        " WHERE other.block_key = blocks.key AND documents.state = 'ready')",
        (document_id,),
    )


def _retire_without_source(sqlite: sqlite3.Connection, document_id: str) -> list[str]:
    if sqlite.execute("SELECT 1 FROM sources WHERE document_id = ?", (document_id,)).fetchone() is not None:
        return []
    retire(sqlite, document_id)
    return [document_id]
