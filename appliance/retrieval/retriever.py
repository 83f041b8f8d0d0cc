"""Retrieval: a question and a collection go in, the chunks that may answer come out."""

from collections.abc import Sequence

from appliance.retrieval.attached import chunks_of_documents, with_attached
from appliance.retrieval.base import METHODS, METHODS_WITH_DOCUMENTS, Hit, RetrievalSettings, SearchableCatalog
from appliance.retrieval.fusion import fuse_ranks, fuse_scores, hits_of
from appliance.retrieval.vectors import VectorIndex, VectorIndexes
from models.embedding import Embedding


class Retriever:
    """Searches collections of one catalog with one embedding model. Any thread may call any method."""

    def __init__(
        self, catalog: SearchableCatalog, embedding: Embedding, settings: RetrievalSettings | None = None
    ) -> None:
        """Nothing is read before the first question."""
        self._catalog = catalog
        self._embedding = embedding
        self._settings = settings or RetrievalSettings()
        self._indexes = VectorIndexes(catalog, embedding.dimensions)

    def search(
        self, collection_id: int, question: str, top_k: int, method: str = "both", documents: Sequence[str] = ()
    ) -> list[Hit]:
        """At most `top_k` hits of this collection, best first; the same question always gets the same order.

        Only the collection's own vectors and words are looked at. `method` is one of `METHODS`. `documents` are ids of
        those that the question is about: see `attached.py`. Raises ValueError for another method or `top_k` < 1,
        UnknownDocument for a document that this collection does not have, EmbeddingMismatch, and what the catalog
        raises.
        """
        if method not in METHODS:
            raise ValueError(f"unknown retrieval method {method!r}: use one of {', '.join(METHODS)}")
        if top_k < 1:
            raise ValueError(f"top_k must be at least 1, not {top_k}")
        if documents and method not in METHODS_WITH_DOCUMENTS:
            raise ValueError(f"documents go with the methods {', '.join(METHODS_WITH_DOCUMENTS)}, not {method!r}")
        attached = chunks_of_documents(self._catalog, collection_id, documents)
        depth = max(self._settings.depth, top_k)
        words = [] if method == "vectors" else self._catalog.search_words(collection_id, question, depth)
        if method == "words":
            return hits_of(dict(words), (), words)[:top_k]
        index = self._indexes.index(collection_id)
        vector = self._embedding.embed_question(question)
        nearest = index.nearest(vector, depth)
        if method == "ranks":
            return fuse_ranks(nearest, words, self._settings)[:top_k]
        also = index.cosines(vector, attached) if attached else {}
        if method == "vectors":
            hits = hits_of({**also, **dict(nearest)}, nearest, ())
        else:
            hits = fuse_scores(nearest, words, lambda chunk_id: index.cosine(vector, chunk_id), self._settings, also)
        return with_attached(hits, set(attached), top_k)

    def index(self, collection_id: int) -> VectorIndex:
        """The collection's vectors as they are now, for who compares chunks with chunks. Raises EmbeddingMismatch."""
        return self._indexes.index(collection_id)

    def warm(self, collection_id: int) -> None:
        """Read the collection's vectors now, so that the first question need not."""
        self._indexes.index(collection_id)

    def forget(self, collection_id: int) -> None:
        """Drop a collection's vectors from memory, as after deleting a document."""
        self._indexes.forget(collection_id)
