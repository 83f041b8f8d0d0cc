"""The paper's workload: a corpus mixed from all data sets, real retrieval, hotness learned apart from measuring."""

import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from appliance.benches.base import BenchRefused, Progress
from appliance.benches.corpus import Corpus
from appliance.benches.datasets import BenchDocument, BenchQuestion, QuestionSet
from appliance.benches.harag.base import SEED
from appliance.engine import Engine
from appliance.retrieval import Retriever
from storage.catalog import Catalog, ChunkRow

COLLECTION = "harag"
SKEW_PERCENT = (1, 5, 10, 20)


@dataclass(frozen=True)
class Workload:
    """Chunks with their ids and block keys, and two disjoint lists of questions.

    Chunks with the same ids share a key, and count as one. `counts`: how often each key was retrieved for the learning
    questions. `found`: for each question the keys it retrieves, best first.
    """

    chunks: Mapping[int, ChunkRow]
    keys: Mapping[int, str]
    ids: Mapping[str, np.ndarray]
    learning: tuple[str, ...]
    measured: tuple[str, ...]
    found: Mapping[str, tuple[str, ...]]
    counts: Mapping[str, int]

    def ranked(self) -> list[tuple[str, float]]:
        """Every key with its count, hottest first; equal ones as they stand in the corpus."""
        return sorted(((key, float(self.counts.get(key, 0))) for key in self.ids), key=lambda entry: -entry[1])


def mix_evenly(
    sets: Sequence[QuestionSet],
    chunks: int,
    cut: Callable[[BenchDocument], Sequence[int]],
    most_tokens: float = float("inf"),
) -> QuestionSet:
    """Documents of all sets until there are `chunks`, always of the set that has fewest chunks so far.

    `cut` gives the tokens of each of a document's chunks. Questions stay whose gold passages (all their passages, where
    the data do not say) are in; each text is asked once. Ends early rather than pass `most_tokens`.
    """
    places: dict[BenchDocument, int] = {}
    begun, counts, tokens = [0] * len(sets), [0] * len(sets), 0
    while sum(counts) < chunks:
        left = [number for number, each in enumerate(sets) if begun[number] < len(each.documents)]
        if not left:
            break
        number = min(left, key=lambda each: counts[each])
        document = sets[number].documents[begun[number]]
        begun[number] += 1
        lengths = () if document in places else cut(document)
        if tokens + sum(lengths) > most_tokens:
            break
        if lengths:
            places[document] = len(places)
            counts[number] += len(lengths)
            tokens += sum(lengths)
    asked: dict[str, BenchQuestion] = {}
    for each in sets:
        at = {index: places[document] for index, document in enumerate(each.documents) if document in places}
        for question in each.questions:
            needed = question.gold or question.context
            if question.text.strip() and needed and all(index in at for index in needed):
                gold = tuple(at[index] for index in question.gold)
                context = tuple(at[index] for index in question.context if index in at)
                asked.setdefault(question.text, BenchQuestion(question.text, question.answers, gold, context))
    return QuestionSet(COLLECTION, tuple(places), tuple(asked.values()))


def split_questions(questions: Sequence[BenchQuestion], measured: int) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Two disjoint halves in an order fixed by the seed: to learn from, and to measure (at most so many).

    Raises BenchRefused where there are fewer than two questions.
    """
    texts = [question.text for question in questions]
    if len(texts) < 2:
        raise BenchRefused("the data hold fewer than two questions about these documents: name question sets")
    random.Random(SEED).shuffle(texts)  # noqa: S311 - a shuffle, no secret
    half = len(texts) // 2
    return tuple(texts[:half]), tuple(texts[half : half + measured])


def retrieve_all(
    engine: Engine,
    catalog: Catalog,
    retriever: Retriever,
    corpus: Corpus,
    halves: tuple[tuple[str, ...], tuple[str, ...]],
    top_k: int,
    progress: Progress,
) -> Workload:
    """What every question retrieves, and what is hot after the first half. Raises BenchRefused."""
    chunks = {chunk.id: chunk for chunk in catalog.chunks(list(corpus.documents))}
    keys: dict[int, str] = {}
    ids: dict[str, np.ndarray] = {}
    for chunk in chunks.values():
        tokens = engine.template.chunk(chunk.title, chunk.text)
        keys[chunk.id] = engine.block_key(COLLECTION, tokens)
        ids.setdefault(keys[chunk.id], tokens)
    learning, measured = halves
    found: dict[str, tuple[str, ...]] = {}
    for number, text in enumerate((*learning, *measured)):
        progress("retrieving", number, len(learning) + len(measured))
        hits = retriever.search(corpus.collection_id, text, top_k)
        if not hits:
            raise BenchRefused(f"the question {text[:60]!r} retrieves nothing: name other data")
        found[text] = tuple(keys[hit.chunk_id] for hit in hits)
    counts = Counter(key for text in learning for key in found[text])
    return Workload(chunks, keys, ids, learning, measured, found, counts)


def skew_of(workload: Workload, tier_of: Callable[[str], str]) -> dict[str, Any]:
    """How uneven the accesses are, and what learning is worth: shares of accesses, 0 to 1.

    `hit_potential` is the share of the measured accesses that go to chunks of each tier by the learned placement: what
    a run that never begins cold could hit.
    """
    everything = Counter(key for keys in workload.found.values() for key in keys)
    measured = Counter(key for text in workload.measured for key in workload.found[text])
    ordered = [count for _, count in everything.most_common()]
    potential: Counter[str] = Counter()
    for key, count in measured.items():
        potential[tier_of(key)] += count
    total = sum(ordered)
    return {
        "accesses": total,
        "distinct_chunks": len(everything),
        "share_of_hottest": {
            f"{percent}%": sum(ordered[: max(1, len(workload.ids) * percent // 100)]) / total
            for percent in SKEW_PERCENT
        },
        "measured_accesses": sum(measured.values()),
        "measured_never_learned": sum(count for key, count in measured.items() if not workload.counts.get(key))
        / sum(measured.values()),
        "hit_potential": {tier: count / sum(measured.values()) for tier, count in sorted(potential.items())},
    }
