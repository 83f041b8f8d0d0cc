"""Blocks whose class of hotness changed are encoded again, in idle time, one a turn (HA-RAG, Algorithm 1, kept true).

What is to do is derived from the catalog, so a kill costs the block in hand. The old file serves until the new one is
`ready`: `BlockStore.publish` swaps the row and then removes the old file.

Down: where every number that is stored is as good as the one it was made from, the stored block is decoded and encoded
again (`derivable`). Up, and everywhere else: the chunk is read again by the model, from its text.
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass, replace

from appliance.block_size import block_file_bytes
from appliance.block_source import wanted_blocks
from appliance.engine import Engine
from appliance.hotness_classes import ClassifiedBlock, classified_blocks
from appliance.turns import Turns
from models.errors import PromptTooLong
from storage.blocks import EncodedBlock, encode_block, read_block_file
from storage.buffers import AlignedBuffers
from storage.catalog import BlockRow, Catalog
from storage.codecs import CodecPair
from storage.durable import WriteFailed
from storage.errors import BlockDamaged, BlockRefused, DiskFull, UnknownRow
from storage.profiles import Profile
from storage.store import BlockStore, expectation

REFUSED_COUNTER = "codecs_refused"
Room = Callable[[int, float], bool]
"""Whether so many more bytes may be stored for a block of this hotness (`DiskBudget.room_for`)."""


@dataclass(frozen=True)
class ReencodeWork:
    """What a run did, in blocks: `encoded` from the stored block, `recomputed` from text, `refused` by their codec,
    `no_room` left as they are because the larger codec is past the disk budget."""

    encoded: int = 0
    recomputed: int = 0
    refused: int = 0
    no_room: int = 0
    error: str | None = None


class Reencoding:
    """Brings stored blocks into the codecs of their classes. One run at a time."""

    def __init__(
        self,
        catalog: Catalog,
        store: BlockStore,
        engine: Engine,
        turns: Turns,
        profile: Profile,
        room: Room = lambda _size_bytes, _score: True,
    ) -> None:
        self._catalog = catalog
        self._store = store
        self._engine = engine
        self._turns = turns
        self._profile = profile
        self._room = room
        self._buffers = AlignedBuffers()
        self._collections = {row.id: row.name for row in catalog.collections()}

    def pending(self) -> list[ClassifiedBlock]:
        """The blocks that wait: those that become smaller first (they make room), then the hottest first."""
        context = self._engine.reader.context
        found = classified_blocks(self._catalog, self._profile, self._engine.fingerprint, context)
        return sorted((each for each in found if each.waits), key=lambda each: self._growth_bytes(each) > 0)

    def run(self, stop: threading.Event | None = None) -> ReencodeWork:
        """Encode again what waits, one block a turn, questions first. A full disk ends the run; nothing is lost."""
        done = dict.fromkeys(("encoded", "recomputed", "refused", "no_room", "changed"), 0)
        error = None
        for each in self.pending():
            if stop is not None and stop.is_set():
                break
            try:
                done[self._one(each)] += 1
            except UnknownRow:
                continue  # deleted meanwhile
            except DiskFull as full:
                error = str(full)
                break
            except WriteFailed as failed:
                error = error or str(failed)
        del done["changed"]
        return ReencodeWork(**done, error=error)

    def _one(self, each: ClassifiedBlock) -> str:
        """Encode one block again and publish it; says what came of it."""
        block, codec = each.block, each.heat.codec
        row = self._catalog.block(block.key)
        if row is None or row.generation != block.generation:
            return "changed"
        growth_bytes = self._growth_bytes(each)
        with self._turns.background():
            if growth_bytes > 0 and not self._room(growth_bytes, block.score):
                return "no_room"
            try:
                encoded, how = self._encoded(each, row, codec)
            except (BlockRefused, PromptTooLong):
                if self._catalog.refuse_codec(block.key, codec.name):
                    self._catalog.count(REFUSED_COUNTER)
                return "refused"
        # Past the turn, because a write yields to questions; one that looked the old row up finds the new one.
        self._store.publish(encoded, row.collection_id, block.chunk_ids)
        return how

    def _encoded(self, each: ClassifiedBlock, row: BlockRow, codec: CodecPair) -> tuple[EncodedBlock, str]:
        """The block in its new codec, one generation on. Raises BlockRefused, PromptTooLong, UnknownRow."""
        if derivable(CodecPair.named(row.codec), codec):
            try:
                return self._from_stored(row, codec), "encoded"
            except BlockDamaged:
                self._store.quarantine(row)  # counted there; the text is still whole
        return self._from_text(each, row, codec), "recomputed"

    def _from_stored(self, row: BlockRow, codec: CodecPair) -> EncodedBlock:
        """Past the memory tiers: what nobody asked for must not push out what somebody did."""
        path = self._store.path(row)
        stored = read_block_file(path, expectation(row), self._buffers, self._engine.direct_reads)
        try:
            keys, values = stored.decode()
        finally:
            if stored.buffer is not None:
                self._buffers.give(stored.buffer)
        header = replace(
            stored.header,
            key_codec=codec.keys,
            value_codec=codec.values,
            generation=row.generation + 1,
            layer_checksums=(),
        )
        return encode_block(header, keys, values)

    def _from_text(self, each: ClassifiedBlock, row: BlockRow, codec: CodecPair) -> EncodedBlock:
        chunks = self._catalog.chunks(each.block.chunk_ids)
        if not chunks:
            raise UnknownRow(f"no chunk uses block {row.key} any more: nothing to encode again")
        collection = self._collection(row.collection_id)
        wanted = wanted_blocks(self._engine, self._catalog, collection, chunks[:1])[0]
        if wanted.key != row.key:
            raise UnknownRow(f"block {row.key} is not of its chunk's tokens: nothing to encode again")
        fingerprint, generation = self._engine.fingerprint, row.generation + 1
        return self._engine.reader.block(wanted.token_ids, row.key, fingerprint, collection, codec, generation)

    def _growth_bytes(self, each: ClassifiedBlock) -> int:
        """How much larger the block's file becomes; negative where it shrinks."""
        geometry, context = self._engine.model.geometry, self._engine.reader.context
        collection = self._collection(each.block.collection_id)
        size_bytes = block_file_bytes(geometry, each.block.tokens, each.heat.codec, collection, context)
        return size_bytes - each.block.size_bytes

    def _collection(self, collection_id: int) -> str:
        """The collection's name; another thread may have begun it after this object was made."""
        if collection_id not in self._collections:
            self._collections = {row.id: row.name for row in self._catalog.collections()}
        return self._collections[collection_id]


def derivable(stored: CodecPair, wanted: CodecPair) -> bool:
    """Whether a block may be made from a stored one instead of from text; for keys and for values.

    Yes from `f32`, and from `bf16` but to `f32`: they lost nothing that the other would keep. Yes from `int8` to itself
    and to our 5, 4 and 3 bits, whose error grows by at most a twentieth. No otherwise: one loss upon another of about
    its size is worse than what was measured of the codec.
    """
    sides = ((stored.keys, wanted.keys), (stored.values, wanted.values))
    return all(_side_derivable(before, after) for before, after in sides)


def _side_derivable(before: str, after: str) -> bool:
    if before == "f32" or (before == "bf16" and after != "f32"):
        return True
    return before == "int8" and after.startswith(("int8", "int5", "int4", "int3")) and after != "int8t"
