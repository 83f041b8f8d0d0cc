"""Chunks are read again behind their neighbours, in idle time, one a turn (FusionRAG, arXiv 2601.12904, §4.1).

What is to do is derived from the catalog, so a kill costs the chunk in hand. A chunk whose neighbours changed keeps its
block until the new one is `ready`; one whose neighbour was deleted loses it at once, in that deletion's transaction.
"""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from appliance.block_size import block_file_bytes
from appliance.block_source import WantedBlock, wanted_blocks
from appliance.engine import Engine
from appliance.hotness_classes import classified_blocks
from appliance.idle import IdleJob
from appliance.neighbours.base import NearPlan, NeighbourSettings
from appliance.neighbours.plans import NearPlans
from appliance.reencoding import Room
from appliance.retrieval.vectors import VectorIndex
from appliance.turns import Turns
from models.errors import PromptTooLong
from models.neighbour_reader import NeighbourReader
from storage.blocks import BlockHeader, EncodedBlock, block_key, encode_block, read_block_file
from storage.buffers import AlignedBuffers
from storage.catalog import Catalog, NearFacts
from storage.codecs import CodecPair
from storage.contexts import is_near, near_context
from storage.errors import BlockDamaged, BlockRefused, DiskFull, StorageError, UnknownRow
from storage.profiles import Profile
from storage.store import BlockStore, expectation

_FALLBACK = CodecPair.named("bf16")
"""For numbers that do not fit the codec of their class."""


@dataclass(frozen=True)
class NeighbourWork:
    """What a run did, in chunks: `read` behind neighbours, `shared` where another chunk of the same text was, `kept`
    where only an older block went, `no_room` in the disk budget, `refused` by every codec or by the window."""

    read: int = 0
    shared: int = 0
    kept: int = 0
    no_room: int = 0
    refused: int = 0
    error: str | None = None


class Neighbouring:
    """Computes and publishes blocks behind neighbours. One run at a time; kept between runs, for its plans."""

    def __init__(
        self,
        catalog: Catalog,
        store: BlockStore,
        engine: Engine,
        turns: Turns,
        index_of: Callable[[int], VectorIndex],
        room: Room = lambda _size_bytes, _score: True,
        settings: NeighbourSettings | None = None,
        profile: Profile | None = None,
    ) -> None:
        """`index_of` is `Retriever.index`; `profile` says which codec a chunk deserves (None: the engine's).

        Where the engine's blocks have another context than `head`, nothing is ever pending.
        """
        self._catalog = catalog
        self._store = store
        self._engine = engine
        self._turns = turns
        self._room = room
        self._settings = settings or NeighbourSettings()
        self._profile = profile or engine.profile
        self._plans = NearPlans(catalog, engine, turns, index_of, self._settings)
        self._buffers = AlignedBuffers()
        self._off = not self._settings.neighbours or engine.reader.context != "head"
        self._reader = None if self._off else NeighbourReader(engine.reader, engine.executor.placers)

    def pending(self, stop: threading.Event | None = None) -> list[NearPlan]:
        """The chunks with a ready block whose block behind neighbours is not there or not the only one, hottest first.

        Raises EmbeddingMismatch and the catalog's errors.
        """
        if self._off:
            return []
        found: list[NearPlan] = []
        for collection in self._catalog.collections():
            if collection.embedding_fingerprint != self._engine.embedding.fingerprint:
                continue  # begun with another embedding model: that one's process does it
            plans = self._plans.of(collection, stop)
            contexts = self._catalog.near_contexts(collection.id, self._engine.fingerprint)
            waiting = [plan for plan in plans.values() if set(contexts.get(plan.chunk_id, ())) != {plan.context}]
            based = self._catalog.blocks([plan.base_key for plan in waiting])
            found += [plan for plan in waiting if plan.base_key in based]
        scores = self._catalog.chunk_scores([plan.chunk_id for plan in found])
        return sorted(found, key=lambda plan: (-scores.get(plan.chunk_id, 0.0), plan.chunk_id))

    def run(self, stop: threading.Event | None = None) -> NeighbourWork:
        """Do what waits, one chunk a turn, questions first. A full disk ends the run; nothing is lost."""
        done = dict.fromkeys(("read", "shared", "kept", "no_room", "refused"), 0)
        error = None
        if not self._off:
            self._finish_deletions()
        pending = self.pending(stop)
        codecs = self._codecs() if pending else {}
        for plan in pending:
            if stop is not None and stop.is_set():
                break
            try:
                done[self._one(plan, codecs.get(plan.base_key))] += 1
            except UnknownRow:
                continue  # deleted meanwhile; the next run has other plans
            except (BlockRefused, PromptTooLong):
                done["refused"] += 1
            except DiskFull as full:
                error = str(full)
                break
            except StorageError as failed:
                error = error or str(failed)
        return NeighbourWork(**done, error=error)

    def job(self, stop: threading.Event) -> str | None:
        """`run` as background work (see `appliance.idle`)."""
        return self.run(stop).error

    def _finish_deletions(self) -> None:
        """Blocks that lost a neighbour when its document was read again go now, not at the next start."""
        lost = [row for row in self._catalog.deleting_blocks() if is_near(row.context)]
        if lost:
            with self._turns.background():  # lest a question that looked one up finds it gone
                self._store.retire(lost)

    def _codecs(self) -> dict[str, tuple[CodecPair, float]]:
        """The codec of its class, and the hotness, of every block without neighbours, by its key."""
        context = self._engine.reader.context
        found = classified_blocks(self._catalog, self._profile, self._engine.fingerprint, context)
        return {each.block.key: (each.heat.codec, each.block.score) for each in found}

    def _one(self, plan: NearPlan, heat: tuple[CodecPair, float] | None) -> str:
        """See to one chunk; says what was done. Raises UnknownRow where a chunk or its text is not that of the plan."""
        collection = next((row.name for row in self._catalog.collections() if row.id == plan.collection_id), "")
        chunks = self._catalog.chunks([plan.chunk_id, *plan.neighbour_ids])
        wanted = wanted_blocks(self._engine, self._catalog, collection, chunks)
        keys = [each.key for each in wanted]
        planned = keys[:1] == [plan.base_key] and len(keys) > 1 and near_context(keys[1:]) == plan.context
        if heat is None or not planned:
            raise UnknownRow(f"chunk {plan.chunk_id} or a neighbour of it changed: nothing to read")
        token_ids = wanted[0].token_ids
        key = block_key(self._engine.fingerprint, collection, "self", plan.context, token_ids)
        there = self._catalog.block(key)
        if there is None:
            how = self._read(plan, wanted, key, collection, heat)
        else:
            own = self._catalog.near_blocks(self._engine.fingerprint, [plan.chunk_id]).get(plan.chunk_id)
            how = "kept" if own is not None and own.key == key else "shared"
            self._catalog.link_block(key, [plan.chunk_id])
        if how != "no_room":
            with self._turns.background():  # lest a question that looked the old one up finds it gone
                self._store.retire(self._catalog.supersede_near(plan.chunk_id, key))
        return how

    def _read(
        self,
        plan: NearPlan,
        wanted: Sequence[WantedBlock],
        key: str,
        collection: str,
        heat: tuple[CodecPair, float],
    ) -> str:
        codec, score = heat
        header = self._header(plan, wanted, key, collection, codec)
        size = (header.geometry, header.tokens, codec, collection, plan.context, len(header.neighbours))
        with self._turns.background():
            if not self._room(block_file_bytes(*size), score):
                return "no_room"
            block, mass = self._behind_neighbours(wanted, header, collection)
        near = NearFacts(plan.base_key, plan.neighbour_ids, mass)
        # Past the turn, because a write yields to questions.
        self._store.publish(block, plan.collection_id, [plan.chunk_id], near=near)
        return "read"

    def _behind_neighbours(
        self, wanted: Sequence[WantedBlock], header: BlockHeader, collection: str
    ) -> tuple[EncodedBlock, np.ndarray]:
        """The block, in the header's codec if its numbers fit, and the scores. Raises BlockRefused, PromptTooLong."""
        if self._reader is None:
            raise BlockRefused("neighbours are switched off")
        blocks = [self._base(each, collection) for each in wanted[1:]]
        try:
            reading = self._reader.read(wanted[0].token_ids, blocks)
        finally:
            for block in blocks:
                if block.buffer is not None:
                    self._buffers.give(block.buffer)
        try:
            return encode_block(header, reading.keys, reading.values), reading.outside_mass
        except BlockRefused:
            plain = replace(header, key_codec=_FALLBACK.keys, value_codec=_FALLBACK.values)
            return encode_block(plain, reading.keys, reading.values), reading.outside_mass

    def _base(self, wanted: WantedBlock, collection: str) -> EncodedBlock:
        """A neighbour's block without neighbours: its stored one, past the memory tiers (what nobody asked for must not
        push out what somebody did), or, where there is none, made for this once."""
        if wanted.row is not None:
            path, expected = self._store.path(wanted.row), expectation(wanted.row)
            try:
                return read_block_file(path, expected, self._buffers, self._engine.direct_reads)
            except BlockDamaged:
                self._store.quarantine(wanted.row)
        return self._engine.reader.block(wanted.token_ids, wanted.key, self._engine.fingerprint, collection)

    def _header(
        self, plan: NearPlan, wanted: Sequence[WantedBlock], key: str, collection: str, codec: CodecPair
    ) -> BlockHeader:
        return BlockHeader(
            key=key,
            fingerprint=self._engine.fingerprint,
            collection=collection,
            kind="self",
            context=plan.context,
            key_codec=codec.keys,
            value_codec=codec.values,
            generation=0,
            tokens=len(wanted[0].token_ids),
            geometry=self._engine.model.geometry,
            neighbours=tuple(each.key for each in wanted[1:]),
        )


def neighbour_job(open_work: Callable[[], Neighbouring]) -> IdleJob:
    """The job over a `Neighbouring` that is made at the first round and kept: its plans cost a search of everything."""
    made: list[Neighbouring] = []

    def job(stop: threading.Event) -> str | None:
        if not made:
            made.append(open_work())
        return made[0].job(stop)

    return job
