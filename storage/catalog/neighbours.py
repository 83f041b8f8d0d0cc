"""Blocks that attended to neighbours: which chunk has one that may be served, and what was recorded with it.

Such a block is served only while every chunk it attended to is in a ready document of its own collection, and in the
question's scope (DESIGN.md §3).
"""

# ruff: noqa: S608 - only our own column names, conditions and question marks are put into statements

import sqlite3
from collections.abc import Collection, Sequence
from dataclasses import fields

import numpy as np

from storage.catalog.attending import NOT_NEAR
from storage.catalog.base import BlockRow, Vectors
from storage.catalog.section import Section, in_groups, marks
from storage.errors import CatalogDamaged

_COLUMNS = ", ".join(f"blocks.{field.name}" for field in fields(BlockRow))
_NEAR = "near_blocks JOIN blocks ON blocks.key = near_blocks.block_key AND blocks.state = 'ready'"
_READY = "JOIN documents ON documents.id = chunks.document_id AND documents.state = 'ready'"
_COMPLETE = (
    # CROSS JOIN keeps SQLite from beginning with all documents, which takes minutes at 20,000 chunks.
    "near_blocks.neighbours = (SELECT count(*) FROM block_neighbours AS seen CROSS JOIN chunks AS other"
    " CROSS JOIN documents AS holder WHERE seen.block_key = blocks.key AND other.id = seen.chunk_id"
    " AND other.collection_id = blocks.collection_id AND holder.id = other.document_id AND holder.state = 'ready')"
)

# As far as a look at all of them may take: a list that lost a neighbour's document is `deleting` anyway.
_LISTED = (
    " JOIN (SELECT block_key, count(*) AS listed FROM block_neighbours GROUP BY block_key) AS seen"
    " ON seen.block_key = blocks.key AND seen.listed = near_blocks.neighbours"
)


class Neighbours(Section):
    """The part of the catalog that knows who attended to whom."""

    def near_blocks(
        self, fingerprint: str, chunk_ids: Sequence[int], documents: Collection[str] | None = None
    ) -> dict[int, BlockRow]:
        """The latest ready block with neighbours of each of these chunks, where it has one that may be served.

        `documents` are the ids that the question may see; None: all of the collection.
        """
        found: dict[int, BlockRow] = {}
        with self._connection.read() as sqlite:
            if not _is_there(sqlite):
                return found
            for group in in_groups(chunk_ids):
                rows = sqlite.execute(
                    f"SELECT block_chunks.chunk_id, {_COLUMNS} FROM {_NEAR}"
                    " JOIN block_chunks ON block_chunks.block_key = blocks.key"
                    f" WHERE blocks.fingerprint = ? AND block_chunks.chunk_id IN ({marks(group)}) AND {_COMPLETE}"
                    " ORDER BY near_blocks.id",
                    (fingerprint, *group),
                ).fetchall()
                for chunk_id, *columns in rows:
                    row = BlockRow(*columns)
                    if documents is None or _documents_seen(sqlite, row.key) <= set(documents):
                        found[chunk_id] = row
        return found

    def neighbours_of(self, key: str) -> list[int]:
        """The chunks that a block attended to, first placed first."""
        with self._connection.read() as sqlite:
            rows = sqlite.execute("SELECT chunk_id FROM block_neighbours WHERE block_key = ? ORDER BY rank", (key,))
            return [int(row[0]) for row in rows]

    def near_contexts(self, collection_id: int, fingerprint: str) -> dict[int, dict[str, str]]:
        """The servable blocks with neighbours of every chunk of a collection: their keys by context."""
        found: dict[int, dict[str, str]] = {}
        with self._connection.read() as sqlite:
            rows = sqlite.execute(
                f"SELECT block_chunks.chunk_id, blocks.context, blocks.key FROM {_NEAR}"
                f" JOIN block_chunks ON block_chunks.block_key = blocks.key{_LISTED}"
                " WHERE blocks.collection_id = ? AND blocks.fingerprint = ?",
                (collection_id, fingerprint),
            )
            for chunk_id, context, key in rows:
                found.setdefault(int(chunk_id), {})[str(context)] = str(key)
        return found

    def craft_scores(self, base_keys: Sequence[str], neighbours_alone: bool = False) -> dict[str, Vectors]:
        """Cache-Craft's scores by the key of the block without neighbours: float32 `[tokens]`, the latest recorded.

        Attention mass on every key outside the own chunk, or on the neighbours' alone. Raises CatalogDamaged.
        """
        found: dict[str, Vectors] = {}
        with self._connection.read() as sqlite:
            if not _is_there(sqlite):
                return found
            for group in in_groups(base_keys):
                rows = sqlite.execute(
                    f"SELECT near_blocks.base_key, blocks.tokens, outside_mass FROM {_NEAR}"
                    f" WHERE near_blocks.base_key IN ({marks(group)}) AND {_COMPLETE} ORDER BY near_blocks.id",
                    group,
                ).fetchall()
                for key, tokens, content in rows:
                    if len(content) != 8 * tokens:
                        raise CatalogDamaged(
                            f"the catalog holds scores of a wrong length for block {key[:12]}:"
                            " run `appliance verify --rebuild`"
                        )
                    both = np.frombuffer(content, dtype="<f4").reshape(2, tokens).astype(np.float32)
                    found[key] = both[int(neighbours_alone)]
        return found

    def supersede_near(self, chunk_id: int, key: str) -> list[BlockRow]:
        """The chunk's other blocks with neighbours, of the same model, are not its own any more.

        Those that no chunk uses are `deleting` from here on and returned: remove their files, then finish.
        """
        of_chunk = (
            "SELECT old.key FROM blocks AS old JOIN near_blocks ON near_blocks.block_key = old.key"
            " JOIN block_chunks ON block_chunks.block_key = old.key WHERE block_chunks.chunk_id = ?1 AND old.key <> ?2"
            " AND old.fingerprint = (SELECT fingerprint FROM blocks WHERE key = ?2)"
        )
        with self._connection.write() as sqlite:
            keys = [str(row[0]) for row in sqlite.execute(of_chunk, (chunk_id, key))]
            gone: list[BlockRow] = []
            for old in keys:
                sqlite.execute("DELETE FROM block_chunks WHERE block_key = ? AND chunk_id = ?", (old, chunk_id))
                unused = sqlite.execute(
                    "UPDATE blocks SET state = 'deleting' WHERE key = ?1"
                    f" AND NOT EXISTS (SELECT 1 FROM block_chunks WHERE block_key = ?1) RETURNING {_COLUMNS}",
                    (old,),
                ).fetchall()
                gone += [BlockRow(*row) for row in unused]
        return gone

    def near_progress(self, fingerprint: str, base_context: str) -> tuple[int, int]:
        """How many chunks have a servable block with neighbours, and how many are to have one.

        To have one: chunks with a block without neighbours, whose KV may be kept, in a collection of several.
        """
        with self._connection.read() as sqlite:
            if not _is_there(sqlite):
                return 0, 0
            ready = sqlite.execute(
                f"SELECT count(DISTINCT block_chunks.chunk_id) FROM {_NEAR} JOIN block_chunks"
                f" ON block_chunks.block_key = blocks.key{_LISTED} WHERE blocks.fingerprint = ?",
                (fingerprint,),
            ).fetchone()
            wanted = sqlite.execute(
                "SELECT coalesce(sum(chunks), 0) FROM (SELECT count(DISTINCT chunks.id) AS chunks FROM chunks"
                f" {_READY} AND documents.kv <> 'off' JOIN block_chunks ON block_chunks.chunk_id = chunks.id"
                " JOIN blocks ON blocks.key = block_chunks.block_key AND blocks.state = 'ready'"
                f" WHERE blocks.fingerprint = ? AND blocks.context = ? AND {NOT_NEAR}"
                " GROUP BY chunks.collection_id HAVING count(DISTINCT blocks.key) > 1)",
                (fingerprint, base_context),
            ).fetchone()
        return int(ready[0]), int(wanted[0])


def _documents_seen(sqlite: sqlite3.Connection, key: str) -> set[str]:
    rows = sqlite.execute(
        "SELECT chunks.document_id FROM block_neighbours AS seen JOIN chunks ON chunks.id = seen.chunk_id"
        " WHERE seen.block_key = ?",
        (key,),
    )
    return {str(row[0]) for row in rows}


def _is_there(sqlite: sqlite3.Connection) -> bool:
    """A reader may find the catalog of an older version, which nobody wrote to since."""
    return sqlite.execute("SELECT 1 FROM sqlite_master WHERE name = 'near_blocks'").fetchone() is not None
