"""`appliance bench throughput`: several askers at once against the same questions one after another.

Each round asks every question both ways, in turns first and second, over the same open appliance with its KV in memory.
"""

import threading
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from appliance.answers import Answer
from appliance.benches.base import (
    BenchRefused,
    Progress,
    check_folder,
    dump_json,
    format_table,
    machine_facts,
    machine_line,
    median,
    no_progress,
    percentile,
)
from appliance.benches.stored_corpus import BenchCorpus, open_corpus
from appliance.errors import ApplianceError
from appliance.service import Appliance
from appliance.settings import LARGEST_TOP_K, Settings

WAYS = ("concurrent", "serial")
BAR = 1.5


@dataclass(frozen=True)
class ThroughputBenchSettings:
    """`data`: documents or question sets; none means the sample folder. `questions`: in each round."""

    data: tuple[Path, ...] = ()
    questions: int = 8
    askers: int = 4
    new_tokens: int = 32
    rounds: int = 3
    top_k: int = 4
    strategy: str = "auto"
    dump: Path | None = None

    def __post_init__(self) -> None:
        for name in ("questions", "new_tokens", "rounds", "top_k"):
            if getattr(self, name) < 1:
                raise BenchRefused(f"{name.replace('_', '-')} is {getattr(self, name)}: choose 1 or more")
        if not 2 <= self.askers <= 32:
            raise BenchRefused(f"askers is {self.askers}: choose 2 to 32")
        if self.top_k > LARGEST_TOP_K:
            raise BenchRefused(f"top-k is {self.top_k}: choose 1 to {LARGEST_TOP_K}")
        check_folder(self.dump, "--dump")


@dataclass(frozen=True)
class Round:
    """Every question both ways: seconds for all of them, and the answers in the order of the questions."""

    seconds: dict[str, float]
    answers: dict[str, tuple[Answer, ...]]


@dataclass(frozen=True)
class ThroughputResult:
    """What was measured. `same_answers`: the share of answers that are the same, token for token, both ways."""

    rounds: tuple[Round, ...]
    facts: dict[str, Any] = field(default_factory=dict)

    def qps(self, way: str) -> float:
        """Questions a second over all rounds."""
        return sum(len(each.answers[way]) for each in self.rounds) / sum(each.seconds[way] for each in self.rounds)

    def as_json(self) -> dict[str, Any]:
        """The object that `bench throughput --json` prints."""
        speedup = self.qps("concurrent") / self.qps("serial")
        pairs = [pair for each in self.rounds for pair in zip(*(each.answers[way] for way in WAYS), strict=True)]
        return {
            "concurrent_qps": self.qps("concurrent"),
            "serial_qps": self.qps("serial"),
            "speedup": speedup,
            "speedups": [each.seconds["serial"] / each.seconds["concurrent"] for each in self.rounds],
            "bar": BAR,
            "held": speedup >= BAR,
            "ttft_ms": {way: self._ttft(way) for way in WAYS},
            "tokens_per_s": {way: self._tokens(way) for way in WAYS},
            "same_answers": sum(one.answer_ids == other.answer_ids for one, other in pairs) / len(pairs),
            **self.facts,
        }

    def _ttft(self, way: str) -> dict[str, float]:
        times = [answer.timing["ttft"] for each in self.rounds for answer in each.answers[way]]
        return {"p50": median(times), "p90": percentile(times, 90), "p99": percentile(times, 99)}

    def _tokens(self, way: str) -> float:
        tokens = sum(answer.tokens["generated"] for each in self.rounds for answer in each.answers[way])
        return tokens / sum(each.seconds[way] for each in self.rounds)


def run_throughput_bench(
    settings: Settings, bench: ThroughputBenchSettings, progress: Progress = no_progress
) -> ThroughputResult:
    """Run it. Raises BenchRefused and what ingesting and asking raise."""
    with open_corpus(settings, bench.data, bench.questions, progress) as corpus:
        asked = [corpus.questions[number % len(corpus.questions)] for number in range(bench.questions)]
        _ask_all(corpus.appliance, asked, bench, 1)  # blocks in memory, everything touched once
        _ask_all(corpus.appliance, asked, bench, bench.askers)
        rounds = []
        for number in range(bench.rounds):
            progress("asking", number, bench.rounds)
            rounds.append(_round(corpus.appliance, asked, bench, WAYS if number % 2 else WAYS[::-1]))
        result = ThroughputResult(tuple(rounds), _facts(corpus, bench, len(set(asked))))
    if bench.dump is not None:
        dump_json(bench.dump, "result", result.as_json())
        dump_json(bench.dump, "answers", [_round_json(each) for each in result.rounds])
    return result


def _round(appliance: Appliance, asked: Sequence[str], bench: ThroughputBenchSettings, order: Sequence[str]) -> Round:
    seconds: dict[str, float] = {}
    answers: dict[str, tuple[Answer, ...]] = {}
    for way in order:
        began = time.perf_counter()
        answers[way] = _ask_all(appliance, asked, bench, bench.askers if way == "concurrent" else 1)
        seconds[way] = time.perf_counter() - began
    return Round(seconds, answers)


def _ask_all(
    appliance: Appliance, asked: Sequence[str], bench: ThroughputBenchSettings, askers: int
) -> tuple[Answer, ...]:
    """Every question by so many threads, each taking the next one when it has its answer."""
    left, found, failed = deque(enumerate(asked)), dict[int, Answer](), list[ApplianceError]()

    def ask() -> None:
        try:
            while not failed:
                number, text = left.popleft()
                found[number] = appliance.answer(
                    text, strategy=bench.strategy, top_k=bench.top_k, max_new_tokens=bench.new_tokens
                )
        except IndexError:
            return  # none is left
        except ApplianceError as error:
            failed.append(error)

    threads = [threading.Thread(target=ask) for _ in range(askers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        raise failed[0]
    return tuple(found[number] for number in range(len(asked)))


def _facts(corpus: BenchCorpus, bench: ThroughputBenchSettings, different: int) -> dict[str, Any]:
    engine = corpus.appliance.engine
    return {
        "data": corpus.name,
        "questions": bench.questions,
        "different_questions": different,
        "rounds": bench.rounds,
        "askers": bench.askers,
        "new_tokens": bench.new_tokens,
        "top_k": bench.top_k,
        "strategy": bench.strategy,
        "model": engine.model.name,
        "fingerprint": engine.fingerprint,
        "codec": engine.reader.codec.name,
        **{name: engine.choices[name] for name in ("placer", "linears", "attention", "decoding")},
        "machine": machine_facts(),
    }


def _round_json(each: Round) -> dict[str, Any]:
    answers = {
        way: [{"question": a.question, "answer_ids": list(a.answer_ids), **a.as_json()} for a in each.answers[way]]
        for way in WAYS
    }
    return {"seconds": each.seconds, "answers": answers}


def table_of(result: ThroughputResult) -> str:
    """For people."""
    told, facts = result.as_json(), result.facts
    rows = [
        [
            f"{facts['askers']} askers at once" if way == "concurrent" else "one after another",
            f"{result.qps(way):.2f}",
            f"{told['tokens_per_s'][way]:.0f}",
            *(f"{told['ttft_ms'][way][name]:.0f}" for name in ("p50", "p90", "p99")),
        ]
        for way in WAYS
    ]
    header = ("", "questions/s", "tokens/s", "first token ms p50", "p90", "p99")
    return "\n".join(
        (
            format_table(header, rows),
            "",
            f"{told['speedup']:.2f} times as many questions; {told['same_answers'] * 100:.0f}% of the answers the same",
            f"{facts['questions']} questions x {facts['rounds']} rounds, {facts['new_tokens']} tokens at most,"
            f" strategy {facts['strategy']}; {facts['data']}",
            machine_line(facts["machine"]),
        )
    )
