"""Running the demo: ingest the sample folder, ask each question twice, compare."""

import textwrap
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from appliance.answers import Answer
from appliance.demo.questions import DEMO_QUESTIONS, DemoQuestion, sample_folder
from appliance.ingest import IngestProgress, IngestReport
from appliance.service import Appliance

# Apart from the user's own documents, which an answer of the demo must not come from.
DEMO_COLLECTION = "demo"
_WIDTHS = (30, 44, 26, 9, 9, 6)
_TITLES = ("question", "answer (from reused KV)", "source", "full ms", "reuse ms", "ratio")


@dataclass(frozen=True)
class DemoAnswer:
    """One question, answered by reading everything again and from stored KV; times to first token."""

    question: str
    answer_full: str
    answer_reuse: str
    right_full: bool
    right_reuse: bool
    source: str
    full_ms: float
    reuse_ms: float

    @property
    def ratio(self) -> float:
        return self.full_ms / self.reuse_ms


@dataclass(frozen=True)
class DemoReport:
    """All answers, and what ingesting the folder took."""

    ingest: IngestReport
    answers: tuple[DemoAnswer, ...]

    def as_json(self) -> dict[str, Any]:
        """The object that `demo --json` prints."""
        return {
            "ingest": self.ingest.as_json(),
            "answers": [{**asdict(answer), "ratio": answer.ratio} for answer in self.answers],
            "right_full": sum(answer.right_full for answer in self.answers),
            "right_reuse": sum(answer.right_reuse for answer in self.answers),
        }

    def as_table(self) -> str:
        """Wrapped columns, a line between questions."""
        rows = [
            (
                answer.question,
                answer.answer_reuse,
                answer.source,
                f"{answer.full_ms:.0f}",
                f"{answer.reuse_ms:.0f}",
                f"{answer.ratio:.1f}",
            )
            for answer in self.answers
        ]
        rule = "  ".join("-" * width for width in _WIDTHS)
        lines = [_row(_TITLES), rule]
        for row in rows:
            lines += [_row(row), rule]
        full, reuse, count = (
            sum(answer.right_full for answer in self.answers),
            sum(answer.right_reuse for answer in self.answers),
            len(self.answers),
        )
        lines.append(f"right answers: {full} of {count} reading everything again, {reuse} of {count} from reused KV")
        return "\n".join(lines)


def ingest_samples(appliance: Appliance, progress: Callable[[IngestProgress], None]) -> IngestReport:
    """Ingest the sample folder; free when it is stored already."""
    return appliance.ingest([sample_folder()], DEMO_COLLECTION, "now", progress)


def ask_samples(appliance: Appliance, ingested: IngestReport) -> DemoReport:
    """Ask each of the five questions twice."""
    appliance.prepare(DEMO_COLLECTION)
    return DemoReport(ingested, tuple(_ask_twice(appliance, question) for question in DEMO_QUESTIONS))


def run_demo(appliance: Appliance, progress: Callable[[IngestProgress], None]) -> DemoReport:
    """Both of the above."""
    return ask_samples(appliance, ingest_samples(appliance, progress))


def _ask_twice(appliance: Appliance, question: DemoQuestion) -> DemoAnswer:
    full = appliance.answer(question.text, collection=DEMO_COLLECTION, strategy="full")
    reuse = appliance.answer(question.text, collection=DEMO_COLLECTION, strategy="reuse")
    return DemoAnswer(
        question=question.text,
        answer_full=full.answer,
        answer_reuse=reuse.answer,
        right_full=question.is_right(full.answer),
        right_reuse=question.is_right(reuse.answer),
        source=_source(reuse, question),
        full_ms=full.timing["ttft"],
        reuse_ms=reuse.timing["ttft"],
    )


def _source(answer: Answer, question: DemoQuestion) -> str:
    """The best source, or the best one that holds the fact, so that a reader can look it up."""
    holding = [source for source in answer.sources if question.fact in source.text]
    source = (holding or list(answer.sources))[0]
    return source.document if source.page is None else f"{source.document}, page {source.page}"


def _row(cells: tuple[str, ...]) -> str:
    wrapped = [textwrap.wrap(cell, width) or [""] for cell, width in zip(cells, _WIDTHS, strict=True)]
    height = max(len(lines) for lines in wrapped)
    padded = [lines + [""] * (height - len(lines)) for lines in wrapped]
    return "\n".join(
        "  ".join(lines[number].ljust(width) for lines, width in zip(padded, _WIDTHS, strict=True)).rstrip()
        for number in range(height)
    )
