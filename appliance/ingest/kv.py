"""The second half of ingesting: chunks become KV blocks. What is to do is what the catalog lacks, so a kill costs
nothing but the chunk it hit."""

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from appliance.block_size import block_file_bytes
from appliance.block_source import wanted_blocks
from appliance.engine import Engine
from appliance.ingest.base import IngestProgress, ProgressListener
from appliance.turns import Turns
from models.errors import PromptTooLong
from storage.catalog import Catalog, ChunkRow
from storage.durable import WriteFailed
from storage.errors import BlockRefused, DiskFull, UnknownRow
from storage.store import BlockStore

_BATCH_CHUNKS = 64


@dataclass(frozen=True)
class KvWork:
    """What a run did: `model_seconds` is the time of reading and encoding; `failed` names chunks without a block.

    `no_room` counts chunks that the disk budget has no room for: they stay searchable and are computed on demand.
    """

    chunks: int = 0
    tokens: int = 0
    bytes: int = 0
    seconds: float = 0.0
    model_seconds: float = 0.0
    failed: tuple[str, ...] = ()
    no_room: int = 0

    @property
    def error(self) -> str | None:
        """The first of `failed`, and how many more there are; None where all went well."""
        if not self.failed:
            return None
        more = len(self.failed) - 1
        return self.failed[0] + (f" (and {more} more like it)" if more else "")


class _NoRoom(Exception):
    """The disk budget is spent on hotter blocks."""


class KvIngest:
    """Computes and publishes the blocks that are missing, one chunk a turn; questions go first."""

    def __init__(
        self,
        catalog: Catalog,
        store: BlockStore,
        engine: Engine,
        turns: Turns,
        room: Callable[[Sequence[int], int], bool] = lambda _chunk_ids, _size_bytes: True,
    ) -> None:
        """`room` says whether a block of so many bytes for these chunks may be stored (HotSet.room_for)."""
        self._room = room
        self._catalog = catalog
        self._store = store
        self._engine = engine
        self._turns = turns
        self._collections = {row.id: row.name for row in catalog.collections()}

    def pending(self, policies: tuple[str, ...], collection_id: int | None = None) -> list[ChunkRow]:
        """All chunks that lack a block of this engine, by id."""
        return lacking_chunks(self._catalog, self._engine, policies, collection_id)

    def run(self, chunks: list[ChunkRow], progress: ProgressListener, stop: threading.Event | None = None) -> KvWork:
        """Compute and publish these chunks' blocks. A full disk ends the run and is the first of `failed`."""
        began = time.perf_counter()
        tokens = size_bytes = done = no_room = 0
        model_s = 0.0
        failed: list[str] = []
        for number, chunk in enumerate(chunks):
            if stop is not None and stop.is_set():
                break
            elapsed = time.perf_counter() - began
            rate = number / elapsed if number else 0.0
            left = (len(chunks) - number) / rate if rate else None
            progress(IngestProgress("kv", chunk.title, 0, 0, number, len(chunks), rate, left))
            try:
                chunk_tokens, chunk_bytes, seconds = self._one(chunk)
            except UnknownRow:
                continue  # deleted meanwhile
            except _NoRoom:
                no_room += 1
                continue
            except DiskFull as full:
                failed.insert(0, str(full))
                break
            except (BlockRefused, WriteFailed) as error:
                failed.append(f"{chunk.title}, chunk {chunk.ordinal + 1}: {error}")
                continue
            tokens += chunk_tokens
            size_bytes += chunk_bytes
            model_s += seconds
            done += 1
        progress(IngestProgress("kv", "", 0, 0, len(chunks), len(chunks), 0.0, 0.0))
        return KvWork(done, tokens, size_bytes, time.perf_counter() - began, model_s, tuple(failed), no_room)

    def _one(self, chunk: ChunkRow) -> tuple[int, int, float]:
        """Tokens, bytes and model seconds of one chunk; nothing but the row if another chunk has the same block."""
        collection = self._collection(chunk.collection_id)
        wanted = wanted_blocks(self._engine, self._catalog, collection, [chunk])[0]
        self._catalog.keep_token_ids(self._engine.tokenizer, {chunk.id: wanted.token_ids})
        if wanted.row is not None:
            self._catalog.link_block(wanted.key, [chunk.id])
            return 0, 0, 0.0
        with self._turns.background():
            if not self._room([chunk.id], self._file_bytes(len(wanted.token_ids), collection)):
                raise _NoRoom
            began = time.perf_counter()
            try:
                block = self._engine.reader.block(wanted.token_ids, wanted.key, self._engine.fingerprint, collection)
            except PromptTooLong as error:  # its own line speaks to someone who asks
                raise BlockRefused(self._too_long(len(wanted.token_ids))) from error
            seconds = time.perf_counter() - began
        row = self._store.publish(block, chunk.collection_id, [chunk.id])
        return len(wanted.token_ids), row.size_bytes, seconds

    def _file_bytes(self, tokens: int, collection: str) -> int:
        reader = self._engine.reader
        return block_file_bytes(self._engine.model.geometry, tokens, reader.codec, collection, reader.context)

    def _too_long(self, tokens: int) -> str:
        head, window = self._engine.reader.head_tokens, self._engine.model.window
        return (
            f"its {tokens} tokens and the {head} before them exceed the model's window of {window}:"
            " name a model with a larger window (--model)"
        )

    def _collection(self, collection_id: int) -> str:
        """The collection's name; another thread may have begun it after this object was made."""
        if collection_id not in self._collections:
            self._collections = {row.id: row.name for row in self._catalog.collections()}
        return self._collections[collection_id]


def lacking_chunks(
    catalog: Catalog, engine: Engine, policies: tuple[str, ...], collection_id: int | None = None
) -> list[ChunkRow]:
    """All chunks of documents with one of these policies that lack a block of this engine, by id."""
    found: list[ChunkRow] = []
    last = 0
    while batch := catalog.chunks_without_block(
        engine.fingerprint, "self", engine.reader.context, policies, _BATCH_CHUNKS, last
    ):
        last = batch[-1].id
        found += [chunk for chunk in batch if collection_id in (None, chunk.collection_id)]
    return found
