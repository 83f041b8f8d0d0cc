"""What the retrieval bench found, and how the numbers are made."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from appliance.benches.base import format_table, machine_line, median, percentile


@dataclass(frozen=True)
class MethodScore:
    """One method over one data set. `recall[k]`: the mean share of answering documents among the first k chunks."""

    method: str
    recall: dict[int, float]
    mrr: float
    median_ms: float
    p95_ms: float


@dataclass(frozen=True)
class SetScore:
    """One data set. `chunks` is what was searched; `windows` how many vectors that made."""

    name: str
    documents: int
    chunks: int
    windows: int
    questions: int
    embed_ms_per_window: float
    methods: tuple[MethodScore, ...]


@dataclass(frozen=True)
class RetrievalBenchResult:
    """All data sets, and what the numbers depend on."""

    sets: tuple[SetScore, ...]
    ks: tuple[int, ...]
    mrr_depth: int
    embedding_fingerprint: str
    machine: dict[str, Any]

    def as_json(self) -> dict[str, Any]:
        """One object of plain values; recall is keyed by k as text."""
        content = asdict(self)
        for entry in content["sets"]:
            for method in entry["methods"]:
                method["recall"] = {str(k): value for k, value in method["recall"].items()}
        return content

    def as_table(self) -> str:
        """A table for people, the machine below it."""
        header = ("data", "questions", "chunks", "method", *(f"recall@{k}" for k in self.ks), "MRR", "ms")
        rows = [
            (
                entry.name,
                str(entry.questions),
                str(entry.chunks),
                score.method,
                *(f"{score.recall[k]:.4f}" for k in self.ks),
                f"{score.mrr:.4f}",
                f"{score.median_ms:.1f}",
            )
            for entry in self.sets
            for score in entry.methods
        ]
        below = f"{machine_line(self.machine)}\nembedding {self.embedding_fingerprint[:16]}, MRR@{self.mrr_depth}"
        return f"{format_table(header, rows)}\n\n{below}"


def score_method(
    method: str,
    found: Sequence[Sequence[int]],
    gold: Sequence[Sequence[int]],
    took_ms: Sequence[float],
    ks: Sequence[int],
    mrr_depth: int,
) -> MethodScore:
    """Score one method: `found` are the documents of each question's chunks, best first; `gold` those that answer.

    The reciprocal rank is that of the first chunk of any gold document, 0 where none is among the first `mrr_depth`.
    Raises ValueError where there is no question, or one without gold.
    """
    if not gold or not all(gold):
        raise ValueError("recall needs at least one question, and gold documents for each")
    recall = {
        k: sum(len(set(documents[:k]) & set(right)) / len(set(right)) for documents, right in _pairs(found, gold))
        / len(gold)
        for k in ks
    }
    ranks = [
        next((rank for rank, document in enumerate(documents[:mrr_depth], start=1) if document in right), 0)
        for documents, right in _pairs(found, gold)
    ]
    mrr = sum(1 / rank for rank in ranks if rank) / len(gold)
    return MethodScore(method, recall, mrr, median(took_ms), percentile(took_ms, 95))


def _pairs(found: Sequence[Sequence[int]], gold: Sequence[Sequence[int]]) -> list[tuple[Sequence[int], Sequence[int]]]:
    return list(zip(found, gold, strict=True))
