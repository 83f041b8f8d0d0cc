"""How often retrieval finds the passage that answers: recall@k and MRR of vectors, words and both."""

import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from appliance.benches.base import BenchRefused, Progress, dump_json, machine_facts, no_progress
from appliance.benches.corpus import Corpus, TokenStarts, publish_corpus
from appliance.benches.datasets import BenchQuestion, QuestionSet, read_question_set
from appliance.benches.retrieval_result import MethodScore, RetrievalBenchResult, SetScore, score_method
from appliance.retrieval import METHODS, Hit, RetrievalSettings, Retriever
from models.embedding import Embedding, EmbeddingModel
from storage.catalog import Catalog
from storage.home import Home
from storage.lock import HomeLock


@dataclass(frozen=True)
class RetrievalBenchSettings:
    """What to measure. `questions` is how many of each set, evenly spread (None: all); documents are always all.

    `token_starts` cuts documents into chunks of `chunk_tokens` as ingest does; without it a document is one chunk.
    The MRR looks at the first `mrr_depth` hits.
    """

    data: tuple[Path, ...]
    embedding: Path
    questions: int | None = None
    ks: tuple[int, ...] = (1, 4, 8)
    mrr_depth: int = 50
    methods: tuple[str, ...] = METHODS
    retrieval: RetrievalSettings = field(default_factory=RetrievalSettings)
    device: str = "cpu"
    token_starts: TokenStarts | None = None
    chunk_tokens: int = 256
    dump: Path | None = None


@dataclass(frozen=True)
class _Asked:
    """One question's hits and milliseconds, by method."""

    question: BenchQuestion
    hits: dict[str, list[Hit]]
    took_ms: dict[str, float]


def run_retrieval_bench(
    settings: RetrievalBenchSettings, embedding: Embedding | None = None, progress: Progress = no_progress
) -> RetrievalBenchResult:
    """Measure every data set, each in a temporary data folder of its own that is gone afterwards.

    The embedding model is loaded from `settings.embedding` unless one is given. Raises BenchRefused, and what loading
    the model raises.
    """
    _check(settings)
    sets = [_with_gold(read_question_set(path), path, settings.questions) for path in settings.data]
    embedding = embedding or EmbeddingModel.load(settings.embedding, settings.device, linears="auto")
    scores = tuple(_measure(questions, settings, embedding, progress) for questions in sets)
    result = RetrievalBenchResult(scores, settings.ks, settings.mrr_depth, embedding.fingerprint, machine_facts())
    if settings.dump is not None:
        dump_json(settings.dump, "retrieval", result.as_json() | {"settings": asdict(settings.retrieval)})
    return result


def _check(settings: RetrievalBenchSettings) -> None:
    if not settings.data:
        raise BenchRefused("no data to measure with: name at least one file with --data")
    if not settings.ks or min(settings.ks) < 1:
        raise BenchRefused(f"--k is {','.join(map(str, settings.ks)) or 'empty'}: name numbers of at least 1, as 1,4,8")
    if settings.questions is not None and settings.questions < 1:
        raise BenchRefused(f"--questions is {settings.questions}: ask at least one")
    unknown = [method for method in settings.methods if method not in METHODS]
    if unknown or not settings.methods:
        raise BenchRefused(f"unknown retrieval method {', '.join(unknown)}: use {', '.join(METHODS)}")


def _with_gold(questions: QuestionSet, path: Path, wanted: int | None) -> QuestionSet:
    """The set with only the questions whose answering documents are known, `wanted` of them evenly spread."""
    known = [question for question in questions.questions if question.gold]
    if not known:
        raise BenchRefused(f"{path} does not say which documents answer: recall needs such data (XQuAD, NQ, HotpotQA)")
    if wanted is not None and wanted < len(known):
        known = [known[index * len(known) // wanted] for index in range(wanted)]
    return QuestionSet(questions.name, questions.documents, tuple(known))


def _measure(
    questions: QuestionSet, settings: RetrievalBenchSettings, embedding: Embedding, progress: Progress
) -> SetScore:
    with tempfile.TemporaryDirectory(prefix="appliance-bench-") as folder:
        home = Home(Path(folder) / "home")
        home.create()
        with HomeLock(home), Catalog.open(home) as catalog:
            corpus = publish_corpus(
                catalog, embedding, questions, settings.token_starts, settings.chunk_tokens, progress
            )
            asked = _ask(questions, corpus, Retriever(catalog, embedding, settings.retrieval), settings, progress)
    if settings.dump is not None:
        dump_json(settings.dump, f"retrieval-{questions.name}", _dump(questions, corpus, asked))
    return SetScore(
        name=questions.name,
        documents=len(questions.documents),
        chunks=len(corpus.documents),
        windows=corpus.windows,
        questions=len(asked),
        embed_ms_per_window=1000 * corpus.embed_s / max(1, corpus.windows),
        methods=tuple(_score(method, asked, corpus, settings) for method in settings.methods),
    )


def _ask(
    questions: QuestionSet,
    corpus: Corpus,
    retriever: Retriever,
    settings: RetrievalBenchSettings,
    progress: Progress,
) -> list[_Asked]:
    """Every question by every method, one after the other in turns, so that a busy moment hurts all alike."""
    limit = max(*settings.ks, settings.mrr_depth)
    retriever.warm(corpus.collection_id)
    asked = []
    for number, question in enumerate(questions.questions):
        hits: dict[str, list[Hit]] = {}
        took_ms: dict[str, float] = {}
        turn = number % len(settings.methods)
        for method in (*settings.methods[turn:], *settings.methods[:turn]):
            started = time.perf_counter()
            hits[method] = retriever.search(corpus.collection_id, question.text, limit, method)
            took_ms[method] = 1000 * (time.perf_counter() - started)
        asked.append(_Asked(question, hits, took_ms))
        progress(f"{questions.name}: asking", number + 1, len(questions.questions))
    return asked


def _score(method: str, asked: Sequence[_Asked], corpus: Corpus, settings: RetrievalBenchSettings) -> MethodScore:
    found = [[corpus.documents[hit.chunk_id] for hit in one.hits[method]] for one in asked]
    gold = [one.question.gold for one in asked]
    took_ms = [one.took_ms[method] for one in asked]
    return score_method(method, found, gold, took_ms, settings.ks, settings.mrr_depth)


def _dump(questions: QuestionSet, corpus: Corpus, asked: Sequence[_Asked]) -> dict[str, Any]:
    """Everything the scores were made of."""
    return {
        "chunks": [
            {"chunk": chunk, "document": owner, "title": questions.documents[owner].title, "span": corpus.spans[chunk]}
            for chunk, owner in corpus.documents.items()
        ],
        "questions": [
            {
                "question": one.question.text,
                "gold": one.question.gold,
                "took_ms": one.took_ms,
                "hits": {method: [asdict(hit) for hit in hits] for method, hits in one.hits.items()},
            }
            for one in asked
        ],
    }
