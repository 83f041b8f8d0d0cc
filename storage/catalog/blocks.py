"""KV blocks: which file holds the keys and values of which chunks."""

# ruff: noqa: S608 - only our own column names, conditions and question marks are put into statements

import sqlite3
from collections.abc import Sequence
from dataclasses import astuple, fields

from storage.catalog.attending import ATTENDING, NOT_NEAR, insert_near
from storage.catalog.base import BlockRow, BlockTotals, ChunkRow, CodecTotals, NearFacts
from storage.catalog.rows import chunk_rows
from storage.catalog.section import Section, in_groups, marks
from storage.contexts import is_near
from storage.errors import StorageError, UnknownRow

_NAMES = tuple(field.name for field in fields(BlockRow))
_COLUMNS = ", ".join(f"blocks.{name}" for name in _NAMES)
_READY_USE = (
    "SELECT 1 FROM block_chunks AS used JOIN chunks ON chunks.id = used.chunk_id"
    " JOIN documents ON documents.id = chunks.document_id"
    " WHERE used.block_key = blocks.key AND documents.state = 'ready'"
)


class Blocks(Section):
    """The part of the catalog that knows blocks."""

    def publish_block(self, row: BlockRow, chunk_ids: Sequence[int], near: NearFacts | None = None) -> str | None:
        """Say that a block's file is durable and may be served. Returns the file that no row names any more, or None.

        A row of the same key and an older (or the same) generation is replaced; where a newer one is here, it stays
        and the caller's file is the one to remove. Raises UnknownRow where none of the chunks is in a ready document
        (it was deleted meanwhile: remove the file), StorageError where the same file is being deleted.

        A block that attended to other chunks needs their list (`near`) and is refused where one of them was deleted.
        """
        if row.state != "ready":
            raise StorageError(f"block {row.key} has the state {row.state!r}: only a ready block can be published")
        if is_near(row.context) != (near is not None):
            raise StorageError(f"block {row.key} of context {row.context!r} goes with the chunks it attended to alone")
        with self._connection.write() as sqlite:
            before = _block(sqlite, row.key)
            if before is not None and before.file == row.file and before.state == "deleting":
                raise StorageError(f"{row.file} is being deleted: publish the block in a newer generation")
            if before is not None and before.generation > row.generation and before.state == "ready":
                _link(sqlite, row.key, chunk_ids)
                return row.file
            sqlite.execute(
                f"INSERT INTO blocks ({', '.join(_NAMES)}) VALUES ({marks(_NAMES)}) ON CONFLICT (key) DO UPDATE SET "
                + ", ".join(f"{name} = excluded.{name}" for name in _NAMES[1:]),
                astuple(row),
            )
            _link(sqlite, row.key, chunk_ids)
            if near is not None:
                insert_near(sqlite, row, near)
            sqlite.execute("DELETE FROM unclaimed_blocks WHERE file = ?", (row.file,))
        return None if before is None or before.file == row.file else before.file

    def link_block(self, key: str, chunk_ids: Sequence[int]) -> None:
        """Say that more chunks (of the same tokens) use a ready block. Raises UnknownRow."""
        with self._connection.write() as sqlite:
            found = _block(sqlite, key)
            if found is None or found.state != "ready":
                raise UnknownRow(f"there is no block {key}: compute it again")
            _link(sqlite, key, chunk_ids)

    def block(self, key: str) -> BlockRow | None:
        """The ready block of this key."""
        return self.blocks([key]).get(key)

    def blocks(self, keys: Sequence[str]) -> dict[str, BlockRow]:
        """The ready blocks among these keys."""
        found: dict[str, BlockRow] = {}
        with self._connection.read() as sqlite:
            for group in in_groups(keys):
                rows = _rows(sqlite, f"state = 'ready' AND key IN ({marks(group)})", tuple(group))
                found |= {row.key: row for row in rows}
        return found

    def all_blocks(self) -> list[BlockRow]:
        """Every block in any state, by key."""
        with self._connection.read() as sqlite:
            return _rows(sqlite, "1 ORDER BY key", ())

    def deleting_blocks(self) -> list[BlockRow]:
        """Blocks whose deletion has begun: unlink their files, then finish."""
        with self._connection.read() as sqlite:
            return _rows(sqlite, "state = 'deleting' ORDER BY key", ())

    def blocks_only_of(self, document_id: str) -> list[BlockRow]:
        """The blocks, in any state, that must go with this document.

        Its chunks use them and no chunk of another ready document, or they attended to one of its chunks.
        """
        mine = (
            "key IN (SELECT block_key FROM block_chunks JOIN chunks ON chunks.id = block_chunks.chunk_id"
            " WHERE chunks.document_id = ?1)"
        )
        with self._connection.read() as sqlite:
            condition = f"({mine} AND NOT EXISTS ({_READY_USE} AND documents.id <> ?1)) OR {ATTENDING} ORDER BY key"
            return _rows(sqlite, condition, (document_id,))

    def unused_blocks(self) -> list[BlockRow]:
        """Ready blocks that no chunk of a ready document uses any more."""
        with self._connection.read() as sqlite:
            return _rows(sqlite, f"state = 'ready' AND NOT EXISTS ({_READY_USE}) ORDER BY key", ())

    def begin_block_delete(self, keys: Sequence[str]) -> None:
        """No reader gets these blocks from here on. Safe to repeat."""
        self._over_keys("UPDATE blocks SET state = 'deleting' WHERE", keys)

    def finish_block_delete(self, keys: Sequence[str]) -> None:
        """Remove the rows, after the files are gone; a block that was published again meanwhile stays."""
        self._over_keys("DELETE FROM blocks WHERE state = 'deleting' AND", keys)

    def chunks_without_block(
        self,
        fingerprint: str,
        kind: str,
        context: str,
        kv_policies: tuple[str, ...],
        limit: int,
        after_chunk_id: int = 0,
    ) -> list[ChunkRow]:
        """Chunks to compute, by id: of ready documents with one of these policies, without such a ready block.

        A caller that works through many passes the last id it saw, so that the finished ones are not looked at again.
        """
        condition = (
            f"documents.kv IN ({marks(kv_policies)}) AND chunks.id > ? AND NOT EXISTS (SELECT 1 FROM block_chunks"
            " JOIN blocks ON blocks.key = block_chunks.block_key WHERE block_chunks.chunk_id = chunks.id"
            " AND blocks.state = 'ready' AND blocks.fingerprint = ? AND blocks.kind = ? AND blocks.context = ?)"
            " ORDER BY chunks.id LIMIT ?"
        )
        with self._connection.read() as sqlite:
            parameters = (*kv_policies, after_chunk_id, fingerprint, kind, context, max(limit, 0))
            return chunk_rows(sqlite, condition, parameters)

    def block_files_of(self, document_id: str) -> dict[int, list[str]]:
        """The files of the ready blocks of every model, by the document's chunk ids; of no other chunk's text."""
        found: dict[int, list[str]] = {}
        with self._connection.read() as sqlite:
            rows = sqlite.execute(
                "SELECT chunks.id, blocks.file FROM chunks JOIN block_chunks ON block_chunks.chunk_id = chunks.id"
                " JOIN blocks ON blocks.key = block_chunks.block_key AND blocks.state = 'ready'"
                f" WHERE chunks.document_id = ? AND {NOT_NEAR} ORDER BY chunks.id, blocks.file",
                (document_id,),
            )
            for chunk_id, file in rows:
                found.setdefault(chunk_id, []).append(file)
        return found

    def block_fingerprints(self) -> list[str]:
        """The models that ready blocks were computed with."""
        statement = "SELECT DISTINCT fingerprint FROM blocks WHERE state = 'ready' ORDER BY fingerprint"
        with self._connection.read() as sqlite:
            return [str(row[0]) for row in sqlite.execute(statement)]

    def document_kv(self, document_id: str, fingerprint: str | None = None) -> BlockTotals:
        """Sums over the ready blocks of one document; `blocks` counts its chunks that have one.

        Of the model with this fingerprint; of any model (one block a chunk) where none is named.
        """
        with self._connection.read() as sqlite:
            row = sqlite.execute(
                "SELECT count(*), coalesce(sum(size_bytes), 0), coalesce(sum(tokens), 0) FROM"
                " (SELECT chunks.id, max(blocks.size_bytes) AS size_bytes, max(blocks.tokens) AS tokens FROM chunks"
                " JOIN block_chunks ON block_chunks.chunk_id = chunks.id"
                " JOIN blocks ON blocks.key = block_chunks.block_key AND blocks.state = 'ready'"
                f" WHERE chunks.document_id = ?1 AND (?2 IS NULL OR blocks.fingerprint = ?2) AND {NOT_NEAR}"
                " GROUP BY chunks.id)",
                (document_id, fingerprint),
            ).fetchone()
        return BlockTotals(*row)

    def block_totals(self) -> BlockTotals:
        """Sums over the ready blocks."""
        with self._connection.read() as sqlite:
            totals = "SELECT count(*), coalesce(sum(size_bytes), 0), coalesce(sum(tokens), 0) FROM blocks"
            return BlockTotals(*sqlite.execute(f"{totals} WHERE state = 'ready'").fetchone())

    def codec_totals(self) -> list[CodecTotals]:
        """Sums over the ready blocks by codec."""
        statement = "SELECT codec, count(*), sum(size_bytes) FROM blocks WHERE state = 'ready' GROUP BY 1 ORDER BY 1"
        with self._connection.read() as sqlite:
            return [CodecTotals(*row) for row in sqlite.execute(statement)]

    def _over_keys(self, statement: str, keys: Sequence[str]) -> None:
        with self._connection.write() as sqlite:
            for group in in_groups(keys):
                sqlite.execute(f"{statement} key IN ({marks(group)})", group)


def _rows(sqlite: sqlite3.Connection, condition: str, parameters: tuple[object, ...]) -> list[BlockRow]:
    rows = sqlite.execute(f"SELECT {_COLUMNS} FROM blocks WHERE {condition}", parameters).fetchall()
    return [BlockRow(*row) for row in rows]


def _block(sqlite: sqlite3.Connection, key: str) -> BlockRow | None:
    rows = _rows(sqlite, "key = ?", (key,))
    return rows[0] if rows else None


def _link(sqlite: sqlite3.Connection, key: str, chunk_ids: Sequence[int]) -> None:
    """Note the use, by chunks of ready documents in the block's collection only."""
    for chunk_id in chunk_ids:
        sqlite.execute(
            "INSERT INTO block_chunks (block_key, chunk_id) SELECT blocks.key, chunks.id FROM blocks, chunks"
            " JOIN documents ON documents.id = chunks.document_id WHERE blocks.key = ? AND chunks.id = ?"
            " AND documents.state = 'ready' AND chunks.collection_id = blocks.collection_id"
            " ON CONFLICT DO NOTHING",
            (key, chunk_id),
        )
    used = f"SELECT 1 FROM blocks WHERE blocks.key = ? AND EXISTS ({_READY_USE})"
    if sqlite.execute(used, (key,)).fetchone() is None:
        raise UnknownRow(f"no chunk uses block {key} any more: remove its file")
