"""Nearest vectors: one exact FAISS index a collection, in memory, made again when the collection changes."""

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import faiss
import numpy as np
import torch
from numpy.typing import NDArray

from appliance.retrieval.base import SearchableCatalog
from storage.errors import EmbeddingMismatch


@dataclass(frozen=True)
class VectorIndex:
    """The windows of one collection at one version. Never changed once made, so any number of threads may search it."""

    version: int
    window_chunk_ids: NDArray[np.int64]
    """`[windows]`, ascending."""
    index: Any
    """faiss.IndexFlatIP: on unit vectors the inner product is the cosine."""
    searcher: ThreadPoolExecutor

    def nearest(self, question: NDArray[np.float32], limit: int) -> list[tuple[int, float]]:
        """(chunk id, cosine of its best window), best first, at most `limit`; equal cosines by chunk id.

        `question` is `[dimensions]`.
        """
        windows = len(self.window_chunk_ids)
        wanted = min(windows, 4 * limit)
        while wanted:
            cosines, rows = self.searcher.submit(self.index.search, question[None, :], wanted).result()
            best: dict[int, float] = {}
            for chunk_id, cosine in zip(self.window_chunk_ids[rows[0]].tolist(), cosines[0].tolist(), strict=True):
                best.setdefault(chunk_id, cosine)  # rows come best first
            if len(best) >= limit or wanted == windows:
                return sorted(best.items(), key=lambda item: (-item[1], item[0]))[:limit]
            wanted = min(windows, 4 * wanted)  # a few long chunks took all the places
        return []

    def cosine(self, question: NDArray[np.float32], chunk_id: int) -> float | None:
        """Cosine of the best window of one chunk; None where the chunk has no vectors. `question` is `[dimensions]`."""
        first, last = np.searchsorted(self.window_chunk_ids, [chunk_id, chunk_id + 1]).tolist()
        if first == last:
            return None
        return float((self.index.reconstruct_n(first, last - first) @ question).max())

    def cosines(self, question: NDArray[np.float32], chunk_ids: Sequence[int]) -> dict[int, float]:
        """Cosine of the best window of each of these chunks, by chunk id; chunks without vectors are left out.

        `question` is `[dimensions]`.
        """
        rows = np.flatnonzero(np.isin(self.window_chunk_ids, np.asarray(chunk_ids, dtype=np.int64)))
        if not len(rows):
            return {}
        owners, firsts = np.unique(self.window_chunk_ids[rows], return_index=True)
        best = np.maximum.reduceat(self._vectors()[rows] @ question, firsts)
        return dict(zip(owners.tolist(), best.tolist(), strict=True))

    def similar(
        self, first: int, last: int, limit: int
    ) -> tuple[NDArray[np.int64], NDArray[np.float32], NDArray[np.int64]]:
        """The windows nearest to each of the windows `[first, last)`, as far as there are any; one search for all.

        Returns the chunk ids of those windows `[rows]`, and cosines and chunk ids of the nearest, best first, their own
        among them, `[rows, n]`; n is `limit` or all windows. One product with all vectors: FAISS searches its index for
        many windows no faster than for each alone (20,000 windows: 5 ms each, here 1 ms).
        """
        vectors = torch.from_numpy(self._vectors())
        cosines, rows = torch.topk(vectors[first:last] @ vectors.T, min(limit, len(vectors)), dim=1)
        return self.window_chunk_ids[first:last], cosines.numpy(), self.window_chunk_ids[rows.numpy()]

    def _vectors(self) -> NDArray[np.float32]:
        """`[windows, dimensions]`, a view into the index."""
        count = len(self.window_chunk_ids)
        numbers = faiss.rev_swig_ptr(self.index.get_xb(), count * self.index.d) if count else np.empty(0, np.float32)
        return np.asarray(numbers).reshape(count, self.index.d)


class VectorIndexes:
    """The index of each collection that was asked. Any thread may call any method."""

    def __init__(self, catalog: SearchableCatalog, dimensions: int) -> None:
        """`dimensions` are those of the embedding model in use."""
        self._catalog = catalog
        self._dimensions = dimensions
        self._lock = threading.Lock()
        self._indexes: dict[int, VectorIndex] = {}
        # FAISS is given one OpenMP thread: for one question more of them only wait for each other (100,000 windows:
        # 5 ms with one, 9 to 35 with two). The setting belongs to the calling thread and would take torch's threads
        # there too, so FAISS gets a thread of its own.
        self._searcher = ThreadPoolExecutor(1, "vectors", initializer=faiss.omp_set_num_threads, initargs=(1,))

    def index(self, collection_id: int) -> VectorIndex:
        """The collection's index as it is now. Raises EmbeddingMismatch and what the catalog raises."""
        with self._lock:
            # The version is read before the vectors: a publish in between costs one reload, and is never missed.
            version = self._catalog.vectors_version(collection_id)
            known = self._indexes.get(collection_id)
            if known is None or known.version != version:
                self._indexes.pop(collection_id, None)  # room for the new one; a deleted text's vectors go at once
                known = self._read(collection_id, version)
                self._indexes[collection_id] = known
            return known

    def forget(self, collection_id: int) -> None:
        """Free the memory of a collection's index; the next question makes it again."""
        with self._lock:
            self._indexes.pop(collection_id, None)

    def _read(self, collection_id: int, version: int) -> VectorIndex:
        chunk_ids, vectors = self._catalog.vectors(collection_id)
        if len(chunk_ids) and vectors.shape[1] != self._dimensions:
            raise EmbeddingMismatch(
                f"collection {collection_id} has vectors of {vectors.shape[1]} numbers, this embedding model makes "
                f"{self._dimensions}: name the model the collection began with (--embedding), or use another collection"
            )
        order = np.argsort(chunk_ids, kind="stable")
        index = faiss.IndexFlatIP(self._dimensions)
        if len(chunk_ids):
            index.add(np.ascontiguousarray(vectors[order], dtype=np.float32))
        return VectorIndex(version, chunk_ids[order], index, self._searcher)
