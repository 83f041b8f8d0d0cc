"""Which neighbours every chunk of a collection is to have: made from its vectors, again whenever they change."""

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from appliance.block_source import wanted_blocks
from appliance.engine import Engine
from appliance.idle import IDLE_POLICIES
from appliance.neighbours.base import NearPlan, NeighbourChooser, NeighbourSettings, Place
from appliance.neighbours.document import DocumentChooser
from appliance.neighbours.embedding import EmbeddingChooser
from appliance.retrieval.vectors import VectorIndex
from appliance.turns import Turns
from storage.catalog import Catalog, CollectionRow, DocumentRow
from storage.contexts import near_context

CHOOSERS: dict[str, Callable[[], NeighbourChooser]] = {"embedding": EmbeddingChooser, "document": DocumentChooser}
"""The ways of choosing, by name."""

# Windows of one search: about 0.1 s at 20,000 windows, so that a question never waits for long.
_WINDOWS_A_TURN = 128
# A chunk of several windows, and chunks of the same text, take several places among the nearest windows.
_WINDOWS_A_NEIGHBOUR = 4
# Of a cosine: the last bits differ with the number of threads, and another order would be another block.
_DIGITS = 5


@dataclass(frozen=True)
class _Made:
    """Plans, and what they were made from."""

    version: int
    documents: tuple[tuple[str, int], ...]
    plans: Mapping[int, NearPlan] = field(repr=False)


class NearPlans:
    """The plans of each collection that was asked for. One thread at a time.

    Neighbours come from the same collection, by one search of its index for all chunks, never from a question's own
    list. Documents whose KV is not to be computed ahead have no part in it.
    """

    def __init__(
        self,
        catalog: Catalog,
        engine: Engine,
        turns: Turns,
        index_of: Callable[[int], VectorIndex],
        settings: NeighbourSettings,
    ) -> None:
        """`index_of` gives a collection's index as it is now. Raises ValueError for an unknown chooser."""
        if settings.chooser not in CHOOSERS:
            raise ValueError(f"neighbours are chosen by {', '.join(CHOOSERS)}, not by {settings.chooser!r}")
        self._catalog = catalog
        self._engine = engine
        self._turns = turns
        self._index_of = index_of
        self._settings = settings
        self._chooser = CHOOSERS[settings.chooser]()
        self._made: dict[int, _Made] = {}

    def of(self, collection: CollectionRow, stop: threading.Event | None = None) -> Mapping[int, NearPlan]:
        """The plan of every chunk that has neighbours, by its id; nothing where `stop` was set meanwhile.

        Kept until a document comes, goes or changes its KV policy. Raises EmbeddingMismatch and the catalog's errors.
        """
        version = self._catalog.vectors_version(collection.id)
        documents = [row for row in self._catalog.documents(collection.id) if row.kv in IDLE_POLICIES]
        stamp = tuple((row.id, row.chunks) for row in documents)
        known = self._made.get(collection.id)
        if known is not None and (known.version, known.documents) == (version, stamp):
            return known.plans
        places = self._places(collection, documents)
        similar = self._similar(collection.id, set(places), stop)
        if similar is None:
            return {}
        plans = self._plans(collection.id, places, similar)
        self._made[collection.id] = _Made(version, stamp, plans)
        return plans

    def _places(self, collection: CollectionRow, documents: Iterable[DocumentRow]) -> dict[int, Place]:
        found: dict[int, Place] = {}
        for document in documents:
            for each in wanted_blocks(
                self._engine, self._catalog, collection.name, self._catalog.chunks_of(document.id)
            ):
                chunk = each.chunk
                found[chunk.id] = Place(chunk.id, document.id, chunk.ordinal, each.key, len(each.token_ids))
        return found

    def _similar(
        self, collection_id: int, wanted: set[int], stop: threading.Event | None
    ) -> dict[int, list[int]] | None:
        """Chunks by falling cosine of their best pair of windows, by chunk; None where it was stopped."""
        index = self._index_of(collection_id)
        limit = _WINDOWS_A_NEIGHBOUR * (self._settings.neighbours + 1)
        best: dict[int, dict[int, float]] = {chunk_id: {} for chunk_id in wanted}
        for first in range(0, len(index.window_chunk_ids), _WINDOWS_A_TURN):
            if stop is not None and stop.is_set():
                return None
            with self._turns.background():
                own, cosines, others = index.similar(first, first + _WINDOWS_A_TURN, limit)
            for chunk_id, row, near in zip(own.tolist(), cosines.tolist(), others.tolist(), strict=True):
                known = best.get(chunk_id)
                if known is None:
                    continue
                for other, cosine in zip(near, row, strict=True):
                    if cosine > known.get(other, -2.0):
                        known[other] = cosine
        return {
            chunk_id: sorted(known, key=lambda other: (-round(known[other], _DIGITS), other))
            for chunk_id, known in best.items()
        }

    def _plans(
        self, collection_id: int, places: Mapping[int, Place], similar: Mapping[int, list[int]]
    ) -> dict[int, NearPlan]:
        by_document: dict[str, list[Place]] = {}
        for place in sorted(places.values(), key=lambda place: place.ordinal):
            by_document.setdefault(place.document_id, []).append(place)
        plans: dict[int, NearPlan] = {}
        for chunk_id, place in places.items():
            ordered = self._chooser.order(place, similar[chunk_id], by_document[place.document_id])
            chosen = self._fitting(place, [places[each] for each in ordered if each in places])
            if chosen:
                context = near_context([each.base_key for each in chosen])
                ids = tuple(each.chunk_id for each in chosen)
                plans[chunk_id] = NearPlan(chunk_id, collection_id, place.base_key, place.tokens, ids, context)
        return plans

    def _fitting(self, place: Place, ordered: Sequence[Place]) -> list[Place]:
        """The first that fit, each text once and never the chunk's own; the most wanted stands last, next to the chunk.

        FusionRAG puts the most similar first. Last closes far more of the gap (docs/benchmarks.md).
        """
        window, head = self._engine.model.window, self._engine.reader.head_tokens
        room_tokens = min(self._settings.tokens, window - head - place.tokens)
        chosen: dict[str, Place] = {}
        for other in ordered:
            if len(chosen) == self._settings.neighbours:
                break
            if other.base_key == place.base_key or other.base_key in chosen:
                continue
            room_tokens -= other.tokens
            if room_tokens < 0:
                break  # the least similar are left out, not the longest
            chosen[other.base_key] = other
        return list(chosen.values())[::-1]
