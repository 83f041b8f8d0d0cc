"""The blocks of one question: from the store where they are ready and whole, else computed and kept."""

import threading
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass

import numpy as np

from appliance.block_size import block_file_bytes
from appliance.engine import Engine
from models.errors import PromptTooLong
from models.landing import LayerListener, LeasedBlock
from storage.blocks import EncodedBlock
from storage.catalog import BlockRow, Catalog, ChunkRow
from storage.codecs import CodecPair
from storage.errors import BlockDamaged, BlockRefused, StorageError, UnknownRow
from storage.store import BlockStore

UNREAD_COUNTER = "blocks_not_read"
"""Loads that failed for want of descriptors or memory."""


@dataclass(frozen=True)
class WantedBlock:
    """A chunk of the prompt, its ids and its block's key; `row` is None where no block is ready.

    `near` is the chunk's block behind its neighbours, where it was asked for and may be served: it goes first, and
    `row` is served where it cannot be read. What is computed for want of both is the block of `key`.
    """

    chunk: ChunkRow
    token_ids: np.ndarray
    key: str
    row: BlockRow | None
    near: BlockRow | None = None

    @property
    def served(self) -> BlockRow | None:
        """The block that is loaded; its `context` says what it attended to."""
        return self.row if self.near is None else self.near


class StoredBlocks:
    """A `BlockSource` over the store. Damage is only noted while loading; `settle` writes it down after the answer."""

    def __init__(
        self,
        engine: Engine,
        catalog: Catalog,
        store: BlockStore,
        collection: str,
        wanted: Sequence[WantedBlock],
        room: Callable[[Sequence[int], int], bool] = lambda _chunk_ids, _size_bytes: True,
    ) -> None:
        """`room` says whether a block of so many bytes for these chunks may be stored (HotSet.room_for)."""
        self._room = room
        self._engine = engine
        self._catalog = catalog
        self._store = store
        self._collection = collection
        self._wanted = list(wanted)
        self._lock = threading.Lock()
        self._damaged: dict[str, tuple[BlockRow, BlockDamaged]] = {}  # by block, which chunks of one text share
        self._granted: set[int] = set()
        self._unread: dict[int, OSError | MemoryError] = {}
        self._computed: dict[int, EncodedBlock] = {}

    def load(self, chunk: int, on_layers: LayerListener) -> LeasedBlock | None:
        wanted = self._wanted[chunk]
        for row in (wanted.near, wanted.row):
            if row is None:
                continue
            try:
                return self._store.load(row, on_layers)
            except BlockDamaged as damage:
                if row is wanted.near and self._is_retired(row):
                    continue  # its neighbours changed since it was looked up
                with self._lock:
                    self._damaged[row.key] = row, damage
            except (OSError, MemoryError) as error:
                # Of this process (no descriptor, no memory), not of the file: the chunk is computed, the block stays.
                with self._lock:
                    self._unread[chunk] = error
                return None
        return None

    def compute(self, chunk: int) -> EncodedBlock:
        wanted = self._wanted[chunk]
        codec = None if wanted.row is None else CodecPair.named(wanted.row.codec)
        fingerprint = self._engine.fingerprint
        block = self._engine.reader.block(wanted.token_ids, wanted.key, fingerprint, self._collection, codec)
        if self._is_absent(wanted):  # a block that could not be read now is still there
            self._computed[chunk] = block
        return block

    def compute_absent(self) -> list[str]:
        """After an answer that computed chunks with its prompt: their blocks, for the next question; warnings."""
        warnings = []
        for chunk, wanted in enumerate(self._wanted):
            if self._is_absent(wanted) and chunk not in self._computed and self._kept(wanted):
                if not self._has_room(wanted):
                    continue
                self._granted.add(chunk)
                try:
                    self.compute(chunk)
                except (BlockRefused, PromptTooLong) as error:
                    warnings.append(f"a block was not computed: {error}")
        return warnings

    @property
    def damaged(self) -> bool:
        """Whether a block failed its check."""
        return bool(self._damaged)

    def warnings(self) -> list[str]:
        """One line for each block that failed its check."""
        order = [row.key for wanted in self._wanted for row in (wanted.near, wanted.row) if row is not None]
        told = [str(self._damaged[key][1]) for key in dict.fromkeys(order) if key in self._damaged]
        unread = {self._wanted[chunk].key: error for chunk, error in sorted(self._unread.items())}
        return [f"damaged block: {line}" for line in told] + [
            f"a block could not be read now ({error or 'no memory'}); its passage was computed"
            for error in unread.values()
        ]

    def settle(self) -> list[str]:
        """Quarantine what was damaged and keep what was computed; returns warnings about what could not be kept.

        Called after the answer, so that no write delays a first token. Safe to repeat.
        """
        warnings = []
        for row, _ in list(self._damaged.values()):
            try:
                self._store.quarantine(row)
            except StorageError as error:  # a full disk: the answer is given all the same
                warnings.append(f"a damaged block was not set aside: {error}")
        self._damaged = {}
        if self._unread:
            with suppress(StorageError):  # counting needs the disk, too
                self._catalog.count(UNREAD_COUNTER, len(self._unread))
            self._unread = {}
        for chunk, block in self._computed.items():
            owner = self._wanted[chunk].chunk
            try:
                granted = chunk in self._granted or self._room([owner.id], block.size_bytes)
                if granted and self._kept(self._wanted[chunk]):
                    self._store.publish(block, owner.collection_id, [owner.id], yields=False)
            except UnknownRow:
                continue  # deleted while the answer was given: nothing to keep
            except StorageError as error:
                warnings.append(f"a computed block was not kept: {error}")
        self._computed = {}
        return warnings

    def _is_retired(self, row: BlockRow) -> bool:
        with suppress(StorageError):  # a catalog that fails says nothing new
            return self._catalog.block(row.key) is None
        return False

    def _is_absent(self, wanted: WantedBlock) -> bool:
        """Whether there is no block of `key`, or only a damaged one."""
        return wanted.row is None or wanted.row.key in self._damaged

    def _has_room(self, wanted: WantedBlock) -> bool:
        """Asked before anything is computed that would not be kept."""
        reader = self._engine.reader
        codec = reader.codec if wanted.row is None else CodecPair.named(wanted.row.codec)
        size = (self._engine.model.geometry, len(wanted.token_ids), codec, self._collection, reader.context)
        try:
            return self._room([wanted.chunk.id], block_file_bytes(*size))
        except StorageError:
            return False

    def _kept(self, wanted: WantedBlock) -> bool:
        """Whether KV of this chunk is to be stored."""
        try:
            return self._catalog.document(wanted.chunk.document_id).kv != "off"
        except UnknownRow:
            return False  # deleted meanwhile


def wanted_blocks(
    engine: Engine,
    catalog: Catalog,
    collection: str,
    chunks: Sequence[ChunkRow],
    near: bool = False,
    documents: Collection[str] | None = None,
) -> list[WantedBlock]:
    """Token ids, keys and ready rows of chunks, in their order. Ids come from the catalog where they are known.

    With `near`, also the blocks behind neighbours, of those all of whose neighbours are among the documents (ids) that
    the question may see; None: all of the collection.
    """
    ids = catalog.token_ids([chunk.id for chunk in chunks], engine.tokenizer)
    for chunk in chunks:
        if chunk.id not in ids:
            ids[chunk.id] = engine.template.chunk(chunk.title, chunk.text)
    keys = [engine.block_key(collection, ids[chunk.id]) for chunk in chunks]
    rows = catalog.blocks(keys)
    behind = catalog.near_blocks(engine.fingerprint, [chunk.id for chunk in chunks], documents) if near else {}
    return [
        WantedBlock(chunk, ids[chunk.id], key, rows.get(key), behind.get(chunk.id))
        for chunk, key in zip(chunks, keys, strict=True)
    ]
