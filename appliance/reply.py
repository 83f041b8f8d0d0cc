"""One answer in the making: what was prepared for it, what came, and the finished answer."""

import time
from dataclasses import dataclass, field
from typing import Any

from appliance.answers import Answer, AnswerStarted, Source
from appliance.block_source import StoredBlocks, WantedBlock
from appliance.planner import Decision
from models.executor import Execution
from models.generation import TextStream
from models.prompt import Prompt
from models.strategies import Plan, StrategyOptions

NO_TOKENS = {"prompt": 0, "reused": 0, "computed": 0, "recomputed": 0, "generated": 0}


@dataclass(frozen=True)
class Question:
    """One question and how to answer it."""

    text: str
    strategy: str
    top_k: int
    max_new_tokens: int
    arrived_s: float  # time.perf_counter() when it came
    without_kv: bool = False  # as if no chunk had KV (benches)
    options: StrategyOptions = field(default_factory=StrategyOptions)
    documents: tuple[str, ...] = ()  # ids of those that it is about: half of the chunks come from them


@dataclass(frozen=True)
class Prepared:
    """A question that was retrieved and planned. `wanted` best first; `ordered` as in the prompt, the best chunk last.

    `told` is what `plan` of the answer says before the plan is carried out.
    """

    question: Question
    sources: tuple[Source, ...]
    wanted: tuple[WantedBlock, ...]
    ordered: tuple[WantedBlock, ...]
    prompt: Prompt
    plan: Plan
    decision: Decision | None
    source: StoredBlocks
    retrieve_ms: float
    told: dict[str, Any]

    @property
    def started(self) -> AnswerStarted:
        """The first event of the answer."""
        return AnswerStarted(self.sources, self.prompt.tokens, self.plan.strategy)


class Reply:
    """Collects what a prepared question's answer consists of. Used by one thread at a time."""

    def __init__(self, prepared: Prepared, tokenizer: Any) -> None:
        self.prepared = prepared
        self.execution: Execution | None = None
        self._stream = TextStream(tokenizer)
        self._ids: list[int] = []
        self._first_token_s = 0.0
        self._ended_s = 0.0
        self._warnings: list[str] = []

    def push(self, token: int) -> str:
        """A token of the answer; returns the text that it completes, possibly empty."""
        self._first_token_s = self._first_token_s or time.perf_counter()
        self._ids.append(token)
        return self._stream.push(token)

    def finish(self) -> str:
        """No token comes any more; returns the text that was held back. Damage is noted before it is settled."""
        piece = self._stream.finish()
        self._ended_s = time.perf_counter()
        self._warnings = self.prepared.source.warnings()
        return piece

    def answer(self, unkept: list[str]) -> Answer:
        """The finished answer; `unkept` are warnings of settling."""
        prepared, execution = self.prepared, self.execution
        tokens = {**NO_TOKENS, "prompt": prepared.prompt.tokens, "generated": len(self._ids)}
        if execution is not None:
            tokens |= {
                "reused": execution.tokens_reused,
                "computed": execution.tokens_computed,
                "recomputed": execution.tokens_recomputed,
            }
        return Answer(
            question=prepared.question.text,
            answer=self._stream.text.strip(),
            sources=prepared.sources,
            strategy=prepared.plan.strategy,
            tokens=tokens,
            timing=self._timing(),
            tiers={} if execution is None else execution.tiers,
            warnings=tuple(self._warnings + unkept),
            answer_ids=tuple(self._ids),
            plan=self._told(),
        )

    def _told(self) -> dict[str, Any]:
        """What `ask --json` shows as `plan`."""
        told, execution = dict(self.prepared.told), self.execution
        if execution is not None and self.prepared.decision is not None:
            told["overtaken_chunks"] = execution.overtaken
        if execution is not None and self.prepared.plan.selector is not None:
            told["tokens_recomputed"] = execution.tokens_recomputed
        return told

    def _timing(self) -> dict[str, float]:
        """In milliseconds; see `Answer`. An answer without a token has the time of deciding so for its first."""
        execution, arrived_s = self.execution, self.prepared.question.arrived_s
        return {
            "retrieve": self.prepared.retrieve_ms,
            "load": 0.0 if execution is None else execution.load_ms,
            "place": 0.0 if execution is None else execution.place_ms,
            "compute": 0.0 if execution is None else execution.compute_ms,
            "ttft": ((self._first_token_s or self._ended_s) - arrived_s) * 1e3,
            "total": (self._ended_s - arrived_s) * 1e3,
        }


def stopped_unread(question: Question) -> Answer:
    """The answer to a question that was stopped before anything was done for it."""
    waited_ms = (time.perf_counter() - question.arrived_s) * 1e3
    timing = {"retrieve": 0.0, "load": 0.0, "place": 0.0, "compute": 0.0, "ttft": waited_ms, "total": waited_ms}
    told = {"choice": question.strategy, "reason": "stopped before it was its turn"}
    return Answer(question.text, "", (), question.strategy, dict(NO_TOKENS), timing, {}, plan=told)
