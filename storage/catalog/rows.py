"""Reading document and chunk rows; their columns stand here once."""

# ruff: noqa: S608 - only our own column names, conditions and question marks are put into statements

import json
import sqlite3
from collections.abc import Iterable

from storage.catalog.base import ChunkRow, DocumentRow
from storage.errors import CatalogDamaged

DOCUMENT_COLUMNS = ", ".join(
    f"documents.{name}"
    for name in (
        *("id", "collection_id", "title", "kind", "digest", "size_bytes"),
        *("pages", "chunks", "kv", "state", "flags", "added_at"),
    )
)
CHUNK_COLUMNS = (
    "chunks.id, chunks.document_id, chunks.collection_id, chunks.ordinal, chunks.page, chunks.start, "
    'chunks."end", chunks.text, documents.title'
)


def document_rows(
    sqlite: sqlite3.Connection, condition: str, parameters: Iterable[object], *, source: bool = False
) -> list[DocumentRow]:
    """The documents that meet `condition` (our own text, never a user's), each once, oldest first."""
    joined = " JOIN sources ON sources.document_id = documents.id" if source else ""
    rows = sqlite.execute(
        f"SELECT DISTINCT {DOCUMENT_COLUMNS} FROM documents{joined} WHERE {condition}"
        " ORDER BY documents.added_at, documents.id",
        tuple(parameters),
    ).fetchall()
    return [DocumentRow(*(*row[:10], _flags(row[10]), row[11])) for row in rows]


def chunk_rows(sqlite: sqlite3.Connection, condition: str, parameters: Iterable[object]) -> list[ChunkRow]:
    """The chunks of ready documents that meet `condition` (our own text, with its order and limit)."""
    rows = sqlite.execute(
        f"SELECT {CHUNK_COLUMNS} FROM chunks JOIN documents ON documents.id = chunks.document_id"
        f" WHERE documents.state = 'ready' AND {condition}",
        tuple(parameters),
    ).fetchall()
    return [ChunkRow(*row) for row in rows]


def _flags(content: str) -> tuple[str, ...]:
    try:
        return tuple(str(flag) for flag in json.loads(content))
    except (ValueError, TypeError) as error:
        raise CatalogDamaged(
            f"the catalog holds damaged flags ({content[:40]!r}): run `appliance verify --rebuild`"
        ) from error
