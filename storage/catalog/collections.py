"""Collections: what is searched together, and with which embedding model."""

# ruff: noqa: S608 - only our own column names, conditions and question marks are put into statements

from storage.catalog.base import CollectionRow
from storage.catalog.section import Section
from storage.errors import EmbeddingMismatch, UnknownRow

_COLUMNS = "id, name, embedding_fingerprint, dimensions, chunk_tokens"


class Collections(Section):
    """The part of the catalog that knows collections."""

    def ensure_collection(
        self, name: str, embedding_fingerprint: str, dimensions: int, chunk_tokens: int
    ) -> CollectionRow:
        """The collection of this name, made if there is none; an existing one keeps its own chunk size.

        Raises EmbeddingMismatch where it was begun with another embedding model.
        """
        with self._connection.write() as sqlite:
            sqlite.execute(
                "INSERT INTO collections (name, embedding_fingerprint, dimensions, chunk_tokens) VALUES (?, ?, ?, ?)"
                " ON CONFLICT (name) DO NOTHING",
                (name, embedding_fingerprint, dimensions, chunk_tokens),
            )
            found = self.collection(name)
        if (found.embedding_fingerprint, found.dimensions) != (embedding_fingerprint, dimensions):
            raise EmbeddingMismatch(
                f"collection {name!r} was begun with another embedding model: name that model, or another collection"
            )
        return found

    def collection(self, name: str) -> CollectionRow:
        """Raises UnknownRow."""
        with self._connection.read() as sqlite:
            row = sqlite.execute(f"SELECT {_COLUMNS} FROM collections WHERE name = ?", (name,)).fetchone()
        if row is None:
            raise UnknownRow(f"there is no collection {name!r}: ingest a document into it first")
        return CollectionRow(*row)

    def collections(self) -> list[CollectionRow]:
        """All of them, by name."""
        with self._connection.read() as sqlite:
            rows = sqlite.execute(f"SELECT {_COLUMNS} FROM collections ORDER BY name").fetchall()
        return [CollectionRow(*row) for row in rows]
