"""Making one ranking of two: by cosine and by words."""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from appliance.retrieval.base import Hit, RetrievalSettings

Ranking = Sequence[tuple[int, float]]
"""(chunk id, score), best first."""

_NONE: Mapping[int, float] = MappingProxyType({})


def fuse_scores(
    vectors: Ranking,
    words: Ranking,
    cosine: Callable[[int], float | None],
    settings: RetrievalSettings,
    also: Mapping[int, float] = _NONE,
) -> list[Hit]:
    """All chunks of both rankings by cosine + weighted BM25, best first; equal scores by chunk id.

    `also` are cosines of chunks to be judged whatever their ranks. A chunk that only words found is looked up with
    `cosine`, so that no chunk is judged by half of what is known.
    Adding scores rather than ranks: Bruch, Gai and Ingber, "An Analysis of Fusion Functions for Hybrid Retrieval"
    (arXiv 2210.11934). Dividing by the question's best BM25 keeps the sum free of the collection's size.
    """
    scale = settings.word_weight / (settings.word_doubt + max((score for _, score in words), default=0.0))
    cosines = {**also, **dict(vectors)}
    scores = dict(cosines)
    for chunk_id, bm25 in words:
        known = cosines.get(chunk_id)
        if known is None:
            known = cosine(chunk_id)
        scores[chunk_id] = (known or 0.0) + scale * bm25
    return hits_of(scores, vectors, words)


def fuse_ranks(vectors: Ranking, words: Ranking, settings: RetrievalSettings) -> list[Hit]:
    """All chunks of both rankings by weighted reciprocal rank, best first; equal scores by chunk id.

    Source: Cormack, Clarke and Buettcher, "Reciprocal Rank Fusion outperforms Condorcet" (SIGIR 2009).
    """
    scores: dict[int, float] = {}
    shares = ((vectors, settings.rank_vector_share), (words, 1 - settings.rank_vector_share))
    for ranking, share in shares:
        for rank, (chunk_id, _) in enumerate(ranking, start=1):
            scores[chunk_id] = scores.get(chunk_id, 0.0) + share / (settings.rank_constant + rank)
    return hits_of(scores, vectors, words)


def hits_of(scores: dict[int, float], vectors: Ranking, words: Ranking) -> list[Hit]:
    """`scores` as hits, best first, equal scores by chunk id, each with its ranks in both rankings."""
    vector_ranks = {chunk_id: rank for rank, (chunk_id, _) in enumerate(vectors, start=1)}
    word_ranks = {chunk_id: rank for rank, (chunk_id, _) in enumerate(words, start=1)}
    ordered = sorted(scores.items(), key=lambda item: (-item[1], item[0]))
    return [Hit(chunk, score, vector_ranks.get(chunk), word_ranks.get(chunk)) for chunk, score in ordered]
