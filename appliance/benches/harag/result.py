"""What `bench harag` measured. Means of speed-ups are mean over mean; `late` is the last half of the questions."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from appliance.benches.base import median
from appliance.benches.harag.base import (
    HARAG_MEASURED,
    HARAG_PAPER,
    TURBORAG,
    TURBORAG_FAST,
    WINDOWS,
    Asked,
    SystemSpec,
)
from appliance.benches.harag.quality import Answered

_LOADS_OVER = (TURBORAG, TURBORAG_FAST)
# What a clock can tell: a load from memory next to it takes no time at all on some.
_LEAST_MS = 1e-3


@dataclass(frozen=True)
class SystemResult:
    """One system over all measured questions. TTFT is retrieval, load, and compute (the tail's pass and the rest).

    Speed-ups are of TTFT over `turborag`; `load_speedup` is of load time (lease to placed) over `turborag`,
    `load_speedup_fast` over `turborag_fast`, each mean over mean, with the median and the largest of single questions.
    `windows` are speed-ups of consecutive parts of the questions. `top1`, `rouge1` and `kl` are those of the KV set,
    against TurboRAG's answers, `top1_bf16` against bf16 through our path, None where nothing was answered;
    `first_token_top1` is how often the first token was TurboRAG's.
    """

    kv_set: str
    ttft_ms_mean: float
    ttft_ms_median: float
    load_ms_mean: float
    compute_ms_mean: float
    speedup_mean: float
    speedup_median: float
    speedup_late: float
    speedup_max: float
    load_speedup: float
    load_speedup_median: float
    load_speedup_max: float
    load_windows: tuple[float, ...]
    load_speedup_fast: float
    load_speedup_fast_median: float
    load_speedup_fast_max: float
    load_windows_fast: tuple[float, ...]
    bytes_read: int
    hit_rate: dict[str, float]
    windows: tuple[float, ...]
    first_token_top1: float
    top1: float | None
    top1_bf16: float | None
    rouge1: float | None
    kl: float | None


@dataclass(frozen=True)
class Bar:
    """One of the issue's bars: what was reached, and what it asks for."""

    what: str
    value: float
    at_least: float

    @property
    def reached(self) -> bool:
        return self.value >= self.at_least


@dataclass(frozen=True)
class HaragResult:
    """All systems by name, in the order of the paper's ablation, and what the numbers depend on."""

    systems: dict[str, SystemResult]
    facts: dict[str, Any]
    notes: tuple[str, ...]

    def bars(self) -> tuple[Bar, ...]:
        """Issue 3, item 12, as far as one run of this bench can tell."""
        measured, paper = self.systems[HARAG_MEASURED], self.systems[HARAG_PAPER]
        if self.facts["device"] == "cuda":
            return (
                Bar("harag_measured over turborag, mean TTFT", measured.speedup_mean, 4.0),
                Bar(
                    "harag_measured over turborag_fast, mean TTFT",
                    self.systems[TURBORAG_FAST].ttft_ms_mean / measured.ttft_ms_mean,
                    2.1,
                ),
            )
        bars = [
            Bar("harag_measured over turborag, mean TTFT", measured.speedup_mean, 2.1),
            Bar("harag_measured over turborag, later half", measured.speedup_late, 2.5),
            Bar("harag_measured over turborag_fast, mean load time", measured.load_speedup_fast, 2.1),
            Bar("harag_paper over turborag, mean TTFT", paper.speedup_mean, 1.8),
            Bar("bytes of turborag_fast over those of harag_measured", self._bytes_ratio(), 2.0),
        ]
        if measured.top1_bf16 is not None:
            bars.append(Bar("harag_measured, top-1 agreement with bf16", measured.top1_bf16, 0.96))
        return tuple(bars)

    def as_json(self) -> dict[str, Any]:
        """The object that `bench harag --json` prints."""
        bars = [{**asdict(bar), "reached": bar.reached} for bar in self.bars()]
        systems = {name: asdict(system) for name, system in self.systems.items()}
        return {"systems": systems, "bars": bars, "notes": list(self.notes), **self.facts}

    def _bytes_ratio(self) -> float:
        ours = self.systems[HARAG_MEASURED].bytes_read
        return self.systems[TURBORAG_FAST].bytes_read / ours if ours else float("inf")


def results_of(
    specs: Sequence[SystemSpec], asked: Sequence[Asked], answered: Sequence[Answered]
) -> dict[str, SystemResult]:
    """All systems of one run."""
    return {spec.name: _result(spec, asked, answered) for spec in specs}


def speedup(asked: Sequence[Asked], system: str) -> float:
    """Mean TTFT of TurboRAG over the system's mean, over these questions."""
    return sum(one.ttft_ms(TURBORAG) for one in asked) / sum(one.ttft_ms(system) for one in asked)


def load_speedup(asked: Sequence[Asked], system: str, over: str) -> float:
    """Mean load time of system `over` over that of the system, over these questions."""
    ours_ms = sum(one.runs[system].load_ms for one in asked)
    return sum(one.runs[over].load_ms for one in asked) / max(ours_ms, _LEAST_MS)


def windows(asked: Sequence[Asked]) -> list[Sequence[Asked]]:
    """At most WINDOWS consecutive parts, none empty, none larger than another by more than one."""
    parts = min(WINDOWS, len(asked))
    return [asked[len(asked) * part // parts : len(asked) * (part + 1) // parts] for part in range(parts)]


def _result(spec: SystemSpec, asked: Sequence[Asked], answered: Sequence[Answered]) -> SystemResult:
    name = spec.name
    runs = [one.runs[name] for one in asked]
    tiers: Counter[str] = Counter()
    for run in runs:
        tiers.update(run.tiers)
    over_turborag, over_fast = ([load_speedup([one], name, over) for one in asked] for over in _LOADS_OVER)
    told = [one.sets[TURBORAG if name == TURBORAG else spec.kv_set] for one in answered]
    return SystemResult(
        kv_set=spec.kv_set,
        ttft_ms_mean=_mean([one.ttft_ms(name) for one in asked]),
        ttft_ms_median=median([one.ttft_ms(name) for one in asked]),
        load_ms_mean=_mean([run.load_ms for run in runs]),
        compute_ms_mean=_mean([run.ms - run.load_ms for run in runs]),
        speedup_mean=speedup(asked, name),
        speedup_median=median([one.ttft_ms(TURBORAG) / one.ttft_ms(name) for one in asked]),
        speedup_late=speedup(asked[len(asked) // 2 :], name),
        speedup_max=max(one.ttft_ms(TURBORAG) / one.ttft_ms(name) for one in asked),
        load_speedup=load_speedup(asked, name, TURBORAG),
        load_speedup_median=median(over_turborag),
        load_speedup_max=max(over_turborag),
        load_windows=tuple(load_speedup(part, name, TURBORAG) for part in windows(asked)),
        load_speedup_fast=load_speedup(asked, name, TURBORAG_FAST),
        load_speedup_fast_median=median(over_fast),
        load_speedup_fast_max=max(over_fast),
        load_windows_fast=tuple(load_speedup(part, name, TURBORAG_FAST) for part in windows(asked)),
        bytes_read=sum(run.disk_bytes for run in runs),
        hit_rate={tier: count / tiers.total() for tier, count in sorted(tiers.items())},
        windows=tuple(speedup(part, name) for part in windows(asked)),
        first_token_top1=_mean([one.runs[name].token == one.runs[TURBORAG].token for one in asked]),
        top1=_mean([_mean(one.agrees) for one in told]) if told else None,
        top1_bf16=_mean([_mean(one.agrees_bf16) for one in told]) if told else None,
        rouge1=_mean([one.rouge1 for one in told]) if told else None,
        kl=_mean([one.kl for one in told]) if told else None,
    )


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
