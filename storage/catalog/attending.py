"""Statements about blocks that attended to other chunks, for the sections that publish and delete."""

# ruff: noqa: S608 - only our own conditions are put into statements

import sqlite3

import numpy as np

from storage.catalog.base import BlockRow, NearFacts
from storage.contexts import NEAR_PREFIX
from storage.errors import StorageError, UnknownRow

NOT_NEAR = f"blocks.context NOT LIKE '{NEAR_PREFIX}%'"
ATTENDING = (
    "key IN (SELECT seen.block_key FROM block_neighbours AS seen JOIN chunks ON chunks.id = seen.chunk_id"
    " WHERE chunks.document_id = ?1)"
)
"""Blocks that attended to a chunk of the document `?1`."""


def retire_attending(sqlite: sqlite3.Connection, document_id: str) -> None:
    """No reader gets a block that attended to this document any more; in the transaction that takes its chunks away."""
    sqlite.execute(f"UPDATE blocks SET state = 'deleting' WHERE {ATTENDING}", (document_id,))


def insert_near(sqlite: sqlite3.Connection, row: BlockRow, near: NearFacts) -> None:
    """Keep what a block attended to, within the caller's transaction, in the place of what was kept of its key.

    Raises UnknownRow where a neighbour is in no ready document of the block's collection, StorageError for scores of
    another shape than `[2, tokens]`.
    """
    mass = np.ascontiguousarray(near.outside_mass, dtype="<f4")
    if mass.shape != (2, row.tokens) or not np.isfinite(mass).all():
        raise StorageError(f"the scores of block {row.key} have the shape {mass.shape}: [2, {row.tokens}] is needed")
    for table in ("near_blocks", "block_neighbours"):
        sqlite.execute(f"DELETE FROM {table} WHERE block_key = ?", (row.key,))
    sqlite.execute(
        "INSERT INTO near_blocks (block_key, base_key, neighbours, outside_mass) VALUES (?, ?, ?, ?)",
        (row.key, near.base_key, len(near.neighbour_ids), mass.tobytes()),
    )
    for rank, chunk_id in enumerate(near.neighbour_ids):
        listed = sqlite.execute(
            "INSERT INTO block_neighbours (block_key, rank, chunk_id) SELECT ?, ?, chunks.id FROM chunks"
            " JOIN documents ON documents.id = chunks.document_id"
            " WHERE chunks.id = ? AND chunks.collection_id = ? AND documents.state = 'ready'",
            (row.key, rank, chunk_id, row.collection_id),
        )
        if listed.rowcount != 1:
            raise UnknownRow(f"a neighbour of block {row.key} was deleted: remove its file")
