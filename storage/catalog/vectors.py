"""Vectors: one row for each window of a chunk, little-endian float32."""

import sqlite3

import numpy as np

from storage.catalog.base import ChunkIds, Vectors
from storage.catalog.section import Section
from storage.errors import CatalogDamaged, StorageError, UnknownRow


class VectorRows(Section):
    """The part of the catalog that keeps vectors."""

    def vectors(self, collection_id: int) -> tuple[ChunkIds, Vectors]:
        """All windows of the collection's ready documents: chunk ids [n] int64 and vectors [n, dimensions] float32.

        A chunk of several windows stands several times; in order of chunk and window.
        """
        with self._connection.read() as sqlite:
            dimensions = _dimensions(sqlite, collection_id)
            chunk_ids: list[int] = []
            content = bytearray()
            for chunk_id, vector in sqlite.execute(
                "SELECT vectors.chunk_id, vectors.vector FROM chunks CROSS JOIN documents CROSS JOIN vectors"
                " WHERE chunks.collection_id = ? AND documents.id = chunks.document_id AND documents.state = 'ready'"
                " AND vectors.chunk_id = chunks.id ORDER BY chunks.id, vectors.ordinal",
                (collection_id,),
            ):
                chunk_ids.append(chunk_id)
                content += vector
        if len(content) != 4 * dimensions * len(chunk_ids):
            raise CatalogDamaged(
                f"collection {collection_id} holds vectors of a wrong length: run `appliance verify --rebuild`"
            )
        vectors = np.frombuffer(content, dtype="<f4").reshape(len(chunk_ids), dimensions)
        return np.asarray(chunk_ids, dtype=np.int64), vectors.astype(np.float32, copy=False)

    def vectors_version(self, collection_id: int) -> int:
        """A number that changes with every publish and delete in the collection. Raises UnknownRow."""
        with self._connection.read() as sqlite:
            row = sqlite.execute("SELECT vectors_version FROM collections WHERE id = ?", (collection_id,)).fetchone()
        if row is None:
            raise UnknownRow(f"there is no collection with id {collection_id}")
        return int(row[0])


def insert_vectors(sqlite: sqlite3.Connection, chunk_id: int, windows: Vectors, dimensions: int) -> None:
    """Keep `windows` [windows, dimensions], within the caller's transaction. Raises StorageError for another shape."""
    if windows.ndim != 2 or windows.shape[0] == 0 or windows.shape[1] != dimensions or not np.isfinite(windows).all():
        raise StorageError(
            f"the vectors of a chunk have the shape {windows.shape} or are not finite: "
            f"one or more rows of {dimensions} finite numbers are needed"
        )
    encoded = np.ascontiguousarray(windows, dtype="<f4")
    rows = [(chunk_id, ordinal, vector.tobytes()) for ordinal, vector in enumerate(encoded)]
    sqlite.executemany("INSERT INTO vectors (chunk_id, ordinal, vector) VALUES (?, ?, ?)", rows)


def bump_version(sqlite: sqlite3.Connection, collection_id: int) -> None:
    """Tell every index in memory to load again."""
    sqlite.execute("UPDATE collections SET vectors_version = vectors_version + 1 WHERE id = ?", (collection_id,))


def _dimensions(sqlite: sqlite3.Connection, collection_id: int) -> int:
    row = sqlite.execute("SELECT dimensions FROM collections WHERE id = ?", (collection_id,)).fetchone()
    if row is None:
        raise UnknownRow(f"there is no collection with id {collection_id}")
    return int(row[0])
