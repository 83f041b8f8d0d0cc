"""`appliance bench planner`: is `auto` ever slower than reading everything again?

Every question is answered by `auto` and twice by `full`, in an order shuffled for each of three rounds, the best of
three of each; the second `full` says what of the spread is the computer's own. The cases follow each other in random
order with one planner, so that it has to follow a disk that is busy now and idle for the next question.
"""

import random
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from appliance.answering import Answerer, Question
from appliance.answers import Answer, AnswerFinished
from appliance.benches.bandwidth import drop_from_page_cache
from appliance.benches.base import (
    BenchRefused,
    Progress,
    dump_json,
    format_table,
    machine_facts,
    machine_line,
    median,
    no_progress,
    percentile,
)
from appliance.benches.busy_disk import BusyDisk
from appliance.benches.stored_corpus import BenchCorpus, open_corpus
from appliance.planner import Planner
from appliance.planner.measure import measure_rates
from appliance.settings import DEFAULT_COLLECTION, Settings
from storage.store import BlockStore, StoreSettings

BEST_OF = 3
BAR = 1.05
PLANNING_BAR_MS = 1.0
_RAM_BYTES = 4 << 30
_SEED = 20261121


@dataclass(frozen=True)
class Case:
    """A situation: chunks in the prompt, whether KV is in memory, on disk, on a busy disk, or not there at all."""

    name: str
    top_k: int
    share: float


CASES = (
    Case("short", 1, 0.45),
    Case("long", 8, 0.1),
    Case("cold", 4, 0.2),
    Case("busy", 4, 0.15),
    Case("absent", 2, 0.1),
)


@dataclass(frozen=True)
class PlannerBenchSettings:
    """`data`: documents or question sets; none means the sample folder. `questions`: pairs over all cases."""

    data: tuple[Path, ...] = ()
    questions: int = 500
    dump: Path | None = None

    def __post_init__(self) -> None:
        if self.questions < len(CASES):
            raise BenchRefused(f"questions is {self.questions}: choose {len(CASES)} or more, one for each case")


@dataclass(frozen=True)
class Pair:
    """One question: the best times to first token in milliseconds, and what the planner said last.

    `planning_ms` is the longest that it took of all rounds.
    """

    case: str
    question: str
    prompt_tokens: int
    auto_ms: float
    full_ms: float
    again_ms: float
    choice: str
    overtaken: int
    planning_ms: float


@dataclass(frozen=True)
class PlannerResult:
    """`p99_auto` and `p99_full` are the 99th percentiles of auto over full, and of full over full."""

    pairs: tuple[Pair, ...]
    facts: dict[str, Any] = field(default_factory=dict)

    def ratios(self, case: str | None = None) -> tuple[list[float], list[float]]:
        """auto/full and full/full of a case, or of all."""
        chosen = [pair for pair in self.pairs if case in (None, pair.case)]
        return [p.auto_ms / p.full_ms for p in chosen], [p.again_ms / p.full_ms for p in chosen]

    def as_json(self) -> dict[str, Any]:
        """The object that `bench planner --json` prints."""
        auto, full = self.ratios()
        p99_auto, p99_full = percentile(auto, 99), percentile(full, 99)
        planning = [pair.planning_ms for pair in self.pairs]
        return {
            "questions": len(self.pairs),
            "p99_auto_full": p99_auto,
            "p99_full_full": p99_full,
            "bar": BAR * p99_full,
            "held": p99_auto <= BAR * p99_full and percentile(planning, 99) <= PLANNING_BAR_MS,
            "median_auto_full": median(auto),
            "max_auto_full": max(auto),
            "planning_ms_median": median(planning),
            "planning_ms_p99": percentile(planning, 99),
            "planning_ms_max": max(planning),
            "cases": {case.name: self._case(case.name) for case in CASES},
            **self.facts,
        }

    def _case(self, name: str) -> dict[str, Any]:
        auto, full = self.ratios(name)
        pairs = [pair for pair in self.pairs if pair.case == name]
        choices = {choice: sum(p.choice == choice for p in pairs) for choice in ("load", "split", "compute")}
        return {
            "questions": len(pairs),
            "p99_auto_full": percentile(auto, 99),
            "p99_full_full": percentile(full, 99),
            "median_auto_full": median(auto),
            "full_ms_median": median([pair.full_ms for pair in pairs]),
            "auto_ms_median": median([pair.auto_ms for pair in pairs]),
            "overtaken": sum(pair.overtaken > 0 for pair in pairs),
            **choices,
        }


def run_planner_bench(
    settings: Settings, bench: PlannerBenchSettings, progress: Progress = no_progress
) -> PlannerResult:
    """Run it. Raises BenchRefused and what ingesting and asking raise."""
    with open_corpus(settings, bench.data, bench.questions, progress) as corpus:
        engine = corpus.appliance.engine
        planner = Planner(measure_rates(engine, corpus.appliance.home.temporary))
        asked = _asked(corpus.questions, bench.questions)
        orders = random.Random(_SEED)  # noqa: S311 - no secret, the same order each time
        pairs = []
        for number, (case, text) in enumerate(asked):
            progress("asking", number, len(asked))
            pairs.append(_pair(corpus, planner, case, text, orders))
        facts = {
            "data": corpus.name,
            "model": engine.model.name,
            "fingerprint": engine.fingerprint,
            "codec": engine.reader.codec.name,
            "rates": planner.current.rates().as_json(),
            "best_of": BEST_OF,
            "machine": machine_facts(),
        }
        result = PlannerResult(tuple(pairs), facts)
    if bench.dump is not None:
        dump_json(bench.dump, "result", result.as_json())
        dump_json(bench.dump, "pairs", [asdict(pair) for pair in pairs])
    return result


def _asked(questions: Sequence[str], wanted: int) -> list[tuple[Case, str]]:
    """Questions dealt out to the cases in random order; used again where there are too few."""
    counts = [max(1, round(case.share * wanted)) for case in CASES]
    counts[0] += wanted - sum(counts)
    dealt = [case for case, count in zip(CASES, counts, strict=True) for _ in range(count)]
    random.Random(_SEED).shuffle(dealt)  # noqa: S311 - no secret, the same order each time
    return [(case, questions[number % len(questions)]) for number, case in enumerate(dealt)]


def _pair(corpus: BenchCorpus, planner: Planner, case: Case, text: str, orders: random.Random) -> Pair:
    """One question, `auto` and both `full` in `orders`; the memory tier is filled before where the case has one."""
    in_memory = case.name in ("short", "long")
    appliance = corpus.appliance
    memory = StoreSettings(_RAM_BYTES if in_memory else 0, direct=appliance.settings.direct_reads)
    store = BlockStore(appliance.home, appliance.catalog, memory)
    answerer = Answerer(appliance.engine, appliance.catalog, store, appliance.retriever, planner=planner)
    best: dict[str, float] = {}
    told: list[Answer] = []
    systems = [("full", "full"), ("auto", "auto"), ("again", "full")]
    with ExitStack() as stack:
        if case.name == "busy":
            stack.enter_context(BusyDisk(appliance.home.temporary))
        if in_memory:
            _ask(corpus, answerer, store, text, case, "reuse")
        for _ in range(BEST_OF):
            orders.shuffle(systems)
            for name, strategy in systems:
                answer = _ask(corpus, answerer, store, text, case, strategy)
                best[name] = min(best.get(name, float("inf")), answer.timing["ttft"])
                if name == "auto":
                    told.append(answer)
    last = told[-1]
    return Pair(
        case=case.name,
        question=text,
        prompt_tokens=last.tokens["prompt"],
        auto_ms=best["auto"],
        full_ms=best["full"],
        again_ms=best["again"],
        choice=last.plan["choice"],
        overtaken=last.plan["overtaken_chunks"],
        planning_ms=max(answer.plan["planning_ms"] for answer in told),
    )


def _ask(corpus: BenchCorpus, answerer: Answerer, store: BlockStore, text: str, case: Case, strategy: str) -> Answer:
    appliance = corpus.appliance
    collection = appliance.catalog.collection(DEFAULT_COLLECTION)
    drop_from_page_cache([store.path(row) for row in appliance.catalog.all_blocks()] if case.name != "short" else [])
    question = Question(text, strategy, case.top_k, 1, time.perf_counter(), without_kv=case.name == "absent")
    for event in answerer.answer(question, collection, keep=False):
        if isinstance(event, AnswerFinished):
            return event.answer
    raise BenchRefused("an answer ended early: run the bench again")


def table_of(result: PlannerResult) -> str:
    """For people."""
    found = result.as_json()
    rows = [
        [
            name,
            str(case["questions"]),
            f"{case['full_ms_median']:.0f}",
            f"{case['auto_ms_median']:.1f}",
            f"{case['median_auto_full']:.3f}",
            f"{case['p99_auto_full']:.3f}",
            f"{case['p99_full_full']:.3f}",
            f"{case['load']}/{case['split']}/{case['compute']}",
            str(case["overtaken"]),
        ]
        for name, case in found["cases"].items()
    ]
    header = ("case", "pairs", "full ms", "auto ms", "median", "p99 a/f", "p99 f/f", "load/split/compute", "overtaken")
    verdict = "held" if found["held"] else "NOT held"
    return "\n".join(
        (
            format_table(header, rows),
            "",
            f"p99(auto/full) {found['p99_auto_full']:.3f}, bar {BAR} x p99(full/full) = {found['bar']:.3f}: {verdict};"
            f" worst {found['max_auto_full']:.3f}; planning {found['planning_ms_median']:.3f} ms,"
            f" p99 {found['planning_ms_p99']:.3f}, at most {found['planning_ms_max']:.3f}",
            f"best of {BEST_OF} each way, shuffled each round, cases in random order; {result.facts['data']}",
            machine_line(result.facts["machine"]),
        )
    )
