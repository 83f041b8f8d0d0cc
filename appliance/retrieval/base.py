"""The contract of retrieval: which chunks of a collection answer a question. Documented here and only here."""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

METHODS = ("vectors", "words", "both", "ranks")
"""`both` adds scores and is what questions use; `ranks` is reciprocal rank fusion, kept to be compared with."""

METHODS_WITH_DOCUMENTS = ("vectors", "both")
"""Those that give every chunk a score, whatever its rank."""

_TITLE_CHARACTERS = 200


@dataclass(frozen=True)
class RetrievalSettings:
    """How two rankings become one. Chosen on half of the questions of XQuAD and NQ, checked on the other half.

    `depth` is how many chunks each ranking hands on. A chunk's score is its cosine plus `word_weight` times
    `bm25 / (best bm25 of this question + word_doubt)`: words count the more the better the best of them matched.
    `rank_constant` and `rank_vector_share` are only for the method `ranks`.
    """

    depth: int = 50
    word_weight: float = 0.5
    word_doubt: float = 40.0
    rank_constant: float = 2.0
    rank_vector_share: float = 0.7

    def __post_init__(self) -> None:
        """Raises ValueError for values that have no meaning."""
        if self.depth < 1:
            raise ValueError(f"depth must be at least 1, not {self.depth}")
        if self.word_weight < 0 or self.word_doubt <= 0 or self.rank_constant <= 0:
            raise ValueError("word_weight must not be negative, word_doubt and rank_constant must be positive")
        if not 0 <= self.rank_vector_share <= 1:
            raise ValueError(f"rank_vector_share must be in [0, 1], not {self.rank_vector_share}")


@dataclass(frozen=True)
class Hit:
    """A chunk that may answer. Ranks count from 1; None where that ranking did not hand the chunk on.

    `score` orders hits of one question and one method; it is comparable with nothing else.
    """

    chunk_id: int
    score: float
    vector_rank: int | None
    word_rank: int | None


class SearchableCatalog(Protocol):
    """What retrieval needs of `storage.catalog.Catalog`."""

    def vectors(self, collection_id: int) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Chunk ids `[windows]` and unit vectors `[windows, dimensions]`, windows of one chunk side by side."""
        ...

    def vectors_version(self, collection_id: int) -> int:
        """Changes with every publish and delete in the collection."""
        ...

    def search_words(self, collection_id: int, question: str, limit: int) -> list[tuple[int, float]]:
        """(chunk id, BM25) of chunks that hold a word of the question, best first."""
        ...

    def chunk_ids_of(self, collection_id: int, document_id: str) -> list[int]:
        """Ids of a document's chunks; none where the collection has no such document that is ready."""
        ...


def text_to_embed(title: str, text: str) -> str:
    """What stands for a chunk before the embedding model: the title first, for many passages never name their subject.

    On NQ the title lifts the vectors' MRR from 0.88 to 0.95; on XQuAD it changes nothing. A very long title is cut.
    """
    title = " ".join(title.split())[:_TITLE_CHARACTERS]
    return f"{title}\n{text}" if title else text
