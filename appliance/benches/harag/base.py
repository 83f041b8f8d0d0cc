"""What is measured, and the words of it: KV sets, systems, one question through one system."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

from appliance.benches.base import BenchRefused
from models.prompt import Prompt
from storage.codecs import CODECS, CodecPair
from storage.placement import Shares

SEED = 20
ANSWER_TOKENS = 16
"""HA-RAG generates as many (§III-A)."""

BF16 = CodecPair("bf16", "bf16")
WINDOWS = 16
"""Parts into which the measured questions are cut, to see speed grow as the tiers fill (Figure 15)."""

TURBORAG, TURBORAG_FAST = "turborag", "turborag_fast"
HARAG_PAPER, HARAG_MEASURED = "harag_paper", "harag_measured"

THRESHOLDS = {
    "param1": (0.10, 0.05, 0.05, 0.80),
    "param2": (0.10, 0.10, 0.05, 0.75),
    "param4": (0.15, 0.10, 0.10, 0.65),
}
"""The paper's settings of τ1, τ2, τ3 and the rest (§III-B2); its `param3`, 10% each, is `harag_paper` itself."""


@dataclass(frozen=True)
class SystemSpec:
    """A system by name: the KV set it reads, and the tiers it places into.

    `preloads`: what is known to be hot is brought to its tier before the first question, as the appliance does in idle
    time; the paper's systems begin with everything on disk.
    """

    name: str
    kv_set: str
    tiers: tuple[str, ...] = ()
    preloads: bool = False


ALL_TIERS = ("gpu", "pinned", "pageable")
SYSTEMS = (
    SystemSpec(TURBORAG, "bf16"),
    SystemSpec(TURBORAG_FAST, "bf16"),
    SystemSpec("mp_only", "paper"),
    SystemSpec("dp_no_pin", "bf16", ("gpu", "pageable")),
    SystemSpec("dp_pin_only", "bf16", ("pinned",)),
    SystemSpec("dp_only", "bf16", ALL_TIERS),
    SystemSpec(HARAG_PAPER, "paper", ALL_TIERS),
    SystemSpec(HARAG_MEASURED, "measured", ALL_TIERS, preloads=True),
)


@dataclass(frozen=True)
class HaragBenchSettings:
    """What to measure. `budget_shares` are percent of the chunks for `gpu`, `pinned` and `pageable`.

    `chunks` is how many the corpus has at least, where the data hold so many. `answers` is how many of the measured
    questions are answered whole, for quality. `thresholds` adds the paper's other settings of τ (Figures 12 and 13).
    `codecs` are those of `harag_measured`'s four classes, hottest first, instead of what calibration says. Without
    `preload` it begins with everything on disk, as the paper's systems do.
    """

    data: tuple[Path, ...]
    questions: int = 512
    top_k: int = 8
    chunk_tokens: int = 256
    budget_shares: tuple[float, float, float] = (5, 5, 10)
    chunks: int = 1000
    answers: int = 128
    thresholds: bool = False
    codecs: tuple[CodecPair, ...] = ()
    preload: bool = True
    plots: Path | None = None
    dump: Path | None = None

    def __post_init__(self) -> None:
        if not self.data:
            raise BenchRefused("no data to measure with: name at least one question set with --data")
        if min(self.questions, self.top_k, self.chunks) < 1 or self.answers < 0:
            raise BenchRefused("questions, top-k and chunks must be at least 1, answers at least 0")
        if not 32 <= self.chunk_tokens <= 512:
            raise BenchRefused(f"--chunk-tokens is {self.chunk_tokens}: choose 32 to 512")
        shares = self.budget_shares
        if not all(map(math.isfinite, shares)) or min(shares) < 0 or sum(shares) > 100:
            raise BenchRefused(
                f"--budget-shares {','.join(f'{share:g}' for share in shares)}: name three percentages of"
                " the chunks, as 5,5,10"
            )
        if self.codecs and len(self.codecs) != 4:
            raise BenchRefused("--codecs must name four codecs or pairs, the hottest class first")
        for name in {name for pair in self.codecs for name in (pair.keys, pair.values)}:
            if name not in CODECS:
                raise BenchRefused(f"--codecs: {name!r} is unknown: choose of {', '.join(CODECS)}")

    @property
    def systems(self) -> tuple[SystemSpec, ...]:
        """Everything that is measured."""
        more = tuple(SystemSpec(f"harag_{name}", name, ALL_TIERS) for name in THRESHOLDS) if self.thresholds else ()
        return tuple(replace(spec, preloads=spec.preloads and self.preload) for spec in (*SYSTEMS, *more))

    def shares(self, tiers: Sequence[str]) -> Shares:
        """The shares of a system that has only these tiers."""
        gpu, pinned, pageable = (
            share / 100 if name in tiers else 0.0 for name, share in zip(ALL_TIERS, self.budget_shares, strict=True)
        )
        return Shares(gpu, pinned, pageable)


@dataclass(frozen=True)
class FirstToken:
    """One question through one system; times in milliseconds, without retrieval.

    `load_ms` is from the first lease (or file opened) to the last slot placed. `tiers` counts chunks by where they
    were found; `disk_bytes` is the sum of the files that were read.
    """

    token: int
    ms: float
    load_ms: float
    tiers: dict[str, int]
    disk_bytes: int


@dataclass(frozen=True)
class Asked:
    """One measured question through every system, in the order in which they had their turn."""

    question: str
    keys: tuple[str, ...]
    """Block keys in prompt order, the best chunk last."""
    prompt_tokens: int
    retrieve_ms: float
    runs: dict[str, FirstToken] = field(default_factory=dict)

    def ttft_ms(self, system: str) -> float:
        """From the question's arrival to its first token."""
        return self.retrieve_ms + self.runs[system].ms


class System(Protocol):
    """Something that gives a question's first token from stored KV."""

    name: str

    def forget(self, keys: Sequence[str]) -> None:
        """Before the clock starts: these chunks' files leave the page cache, if this system would read them there."""

    def first_token(self, prompt: Prompt, keys: Sequence[str]) -> FirstToken:
        """Load the chunks' KV (`keys` in prompt order), compute the tail, choose the first token."""
