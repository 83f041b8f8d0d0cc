"""Documents and their chunks: publishing as one step, and looking them up."""

import json
import sqlite3
from collections.abc import Sequence
from datetime import UTC, datetime

from storage.catalog.attending import retire_attending
from storage.catalog.base import ChunkRow, DocumentRow, NewDocument
from storage.catalog.rows import chunk_rows, document_rows
from storage.catalog.section import Section, in_groups, marks
from storage.catalog.sources import set_source
from storage.catalog.vectors import bump_version, insert_vectors
from storage.catalog.words import insert_words, remove_words
from storage.errors import StorageError, UnknownRow


class Documents(Section):
    """The part of the catalog that knows documents and chunks."""

    def publish_document(self, document: NewDocument) -> list[str]:
        """Make a document searchable, whole or not at all; one that has this id already is replaced.

        Returns the ids of documents that no path holds any more (the path held them before): they are `deleting`.
        """
        with self._connection.write() as sqlite:
            row = sqlite.execute(
                "SELECT dimensions FROM collections WHERE id = ?", (document.collection_id,)
            ).fetchone()
            if row is None:
                raise UnknownRow(f"there is no collection with id {document.collection_id}")
            _insert_document(sqlite, document)
            for chunk in document.chunks:
                cursor = sqlite.execute(
                    'INSERT INTO chunks (document_id, collection_id, ordinal, page, start, "end", text)'
                    " VALUES (?, ?, ?, ?, ?, ?, ?)",
                    (
                        *(document.id, document.collection_id, chunk.ordinal, chunk.page),
                        *(chunk.start, chunk.end, chunk.text),
                    ),
                )
                chunk_id = int(cursor.lastrowid or 0)
                insert_words(sqlite, chunk_id, document.title, chunk.text)
                insert_vectors(sqlite, chunk_id, chunk.windows, int(row[0]))
            bump_version(sqlite, document.collection_id)
            return set_source(
                sqlite, document.collection_id, document.path, document.id, document.size_bytes, document.mtime_ns
            )

    def document(self, document_id: str) -> DocumentRow:
        """In any state. Raises UnknownRow."""
        with self._connection.read() as sqlite:
            found = document_rows(sqlite, "documents.id = ?", (document_id,))
        if not found:
            raise UnknownRow(f"there is no document {document_id!r}: see `appliance list`")
        return found[0]

    def document_by_digest(self, collection_id: int, digest: str) -> DocumentRow | None:
        """The ready document of this content, if there is one."""
        with self._connection.read() as sqlite:
            condition = "documents.state = 'ready' AND documents.collection_id = ? AND documents.digest = ?"
            found = document_rows(sqlite, condition, (collection_id, digest))
        return found[0] if found else None

    def documents(self, collection_id: int | None = None) -> list[DocumentRow]:
        """The ready documents, oldest first; of all collections where none is named."""
        with self._connection.read() as sqlite:
            condition = "documents.state = 'ready' AND (?1 IS NULL OR documents.collection_id = ?1)"
            return document_rows(sqlite, condition, (collection_id,))

    def find_document(self, text: str, collection_id: int | None = None) -> DocumentRow:
        """The one ready document that a person means: by id, exact path, file name or title, in this order.

        Raises UnknownRow where there is none, or more than one.
        """
        scope = "documents.state = 'ready' AND (?2 IS NULL OR documents.collection_id = ?2) AND "
        ways = (
            ("documents.id = ?1", False),
            ("sources.path = ?1", True),
            ("substr(sources.path, -(length(?1) + 1)) = '/' || ?1", True),
            ("documents.title = ?1", False),
        )
        with self._connection.read() as sqlite:
            for condition, source in ways:
                found = document_rows(sqlite, scope + condition, (text, collection_id), source=source)
                if len(found) > 1:
                    raise UnknownRow(f"{text!r} means {len(found)} documents: name one by its id (`appliance list`)")
                if found:
                    return found[0]
        raise UnknownRow(f"there is no document {text!r}: see `appliance list`")

    def set_kv(self, document_id: str, kv: str) -> None:
        """Change when the document's KV is computed (`now`, `idle`, `off`). Raises UnknownRow, StorageError."""
        with self._connection.write() as sqlite:
            changed = sqlite.execute("UPDATE documents SET kv = ? WHERE id = ?", (kv, document_id)).rowcount
        if not changed:
            raise UnknownRow(f"there is no document {document_id!r}: see `appliance list`")

    def chunks(self, chunk_ids: Sequence[int]) -> list[ChunkRow]:
        """The chunks with these ids, in the order given; those of no ready document are left out."""
        found: dict[int, ChunkRow] = {}
        with self._connection.read() as sqlite:
            for group in in_groups(chunk_ids):
                found |= {row.id: row for row in chunk_rows(sqlite, f"chunks.id IN ({marks(group)})", group)}
        return [found[chunk_id] for chunk_id in chunk_ids if chunk_id in found]

    def chunks_of(self, document_id: str) -> list[ChunkRow]:
        """The chunks of a ready document, in order of the text."""
        with self._connection.read() as sqlite:
            return chunk_rows(sqlite, "chunks.document_id = ? ORDER BY chunks.ordinal", (document_id,))

    def chunk_ids_of(self, collection_id: int, document_id: str) -> list[int]:
        """The ids of the document's chunks, ascending; none where it is not ready, or of another collection."""
        with self._connection.read() as sqlite:
            rows = sqlite.execute(
                "SELECT chunks.id FROM chunks JOIN documents ON documents.id = chunks.document_id"
                " WHERE chunks.document_id = ? AND chunks.collection_id = ? AND documents.state = 'ready'"
                " ORDER BY chunks.id",
                (document_id, collection_id),
            ).fetchall()
        return [int(row[0]) for row in rows]

    def chunk_count(self) -> int:
        """How many chunks the ready documents have."""
        with self._connection.read() as sqlite:
            found = sqlite.execute("SELECT coalesce(sum(chunks), 0) FROM documents WHERE state = 'ready'").fetchone()
        return int(found[0])


def _insert_document(sqlite: sqlite3.Connection, document: NewDocument) -> None:
    """Insert the row, or replace it and drop its chunks; paths that hold the same content stay."""
    other = sqlite.execute(
        "SELECT collection_id, digest FROM documents WHERE id = ?",
        (document.id,),
    ).fetchone()
    if other is not None and other != (document.collection_id, document.digest):
        raise StorageError(f"document id {document.id!r} is taken by another content: ids must depend on the content")
    remove_words(sqlite, document.id)
    retire_attending(sqlite, document.id)
    sqlite.execute("DELETE FROM chunks WHERE document_id = ?", (document.id,))
    sqlite.execute(
        "INSERT INTO documents (id, collection_id, title, kind, digest, size_bytes, pages, chunks, kv, state, flags,"
        " added_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, 'ready', ?, ?) ON CONFLICT (id) DO UPDATE SET"
        " title = excluded.title, kind = excluded.kind, size_bytes = excluded.size_bytes, pages = excluded.pages,"
        " chunks = excluded.chunks, kv = excluded.kv, state = 'ready', flags = excluded.flags",
        (
            *(document.id, document.collection_id, document.title, document.kind, document.digest),
            *(document.size_bytes, document.pages, len(document.chunks), document.kv),
            *(json.dumps(document.flags), datetime.now(UTC).isoformat(timespec="seconds")),
        ),
    )
