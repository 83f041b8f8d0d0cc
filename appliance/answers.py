"""What asking gives: a stream of events, and the finished answer as people and scripts see it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

TIERS = ("gpu", "pinned", "pageable", "disk", "computed")


@dataclass(frozen=True)
class Source:
    """A chunk the answer was given from: `[start, end)` in characters of the document's text."""

    document: str
    page: int | None
    start: int
    end: int
    text: str
    score: float

    def as_json(self) -> dict[str, Any]:
        return dict(self.__dict__)


@dataclass(frozen=True)
class Answer:
    """`sources` best first. `tokens`: prompt, reused, computed, generated. `timing` in milliseconds: retrieve, load,
    place, compute, ttft (question's arrival to first token), total. `tiers`: chunks by where their KV came from.
    `plan`: what was loaded and what computed, and why (Decision.as_json of the planner)."""

    question: str
    answer: str
    sources: tuple[Source, ...]
    strategy: str
    tokens: dict[str, int]
    timing: dict[str, float]
    tiers: dict[str, int]
    warnings: tuple[str, ...] = ()
    answer_ids: tuple[int, ...] = field(default=(), repr=False)
    plan: Mapping[str, Any] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """The object that `ask --json` prints."""
        return {
            "answer": self.answer,
            "sources": [source.as_json() for source in self.sources],
            "strategy": self.strategy,
            "tokens": self.tokens,
            "timing": {name: round(value, 3) for name, value in self.timing.items()},
            "tiers": {name: self.tiers.get(name, 0) for name in TIERS},
            "plan": dict(self.plan),
            "warnings": list(self.warnings),
        }


@dataclass(frozen=True)
class AnswerStarted:
    """The sources are known; the model begins to read."""

    sources: tuple[Source, ...]
    prompt_tokens: int
    strategy: str


@dataclass(frozen=True)
class AnswerText:
    """A piece of the answer, to append."""

    text: str


@dataclass(frozen=True)
class AnswerFinished:
    """The last event."""

    answer: Answer


AnswerEvent = AnswerStarted | AnswerText | AnswerFinished
