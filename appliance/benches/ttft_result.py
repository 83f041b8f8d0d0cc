"""What `bench ttft` measured."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from appliance.benches.base import median

_PARTS = ("retrieve", "load", "place", "compute")


@dataclass(frozen=True)
class Sample:
    """One question asked of every system in turn; times in milliseconds."""

    question: str
    chunks: int
    prompt_tokens: int
    ttft_ms: dict[str, float]
    timing: dict[str, dict[str, float]]
    sdpa_ms: float


@dataclass(frozen=True)
class TtftResult:
    """Medians over all samples; ratios are ratios of these medians."""

    chunks: int
    prompt_tokens: int
    full_ms: float
    reuse_ram_ms: float
    reuse_disk_ms: float
    sdpa_ms: float
    floor_ms: float
    breakdown: dict[str, dict[str, float]]
    facts: dict[str, Any]

    @property
    def ratio_ram(self) -> float:
        return self.full_ms / self.reuse_ram_ms

    @property
    def ratio_disk(self) -> float:
        return self.full_ms / self.reuse_disk_ms

    @classmethod
    def of(cls, samples: Sequence[Sample], floor_ms: float, facts: dict[str, Any]) -> "TtftResult":
        """Medians of samples."""
        names = list(samples[0].ttft_ms)
        times = {name: median([sample.ttft_ms[name] for sample in samples]) for name in names}
        return cls(
            chunks=round(median([sample.chunks for sample in samples])),
            prompt_tokens=round(median([sample.prompt_tokens for sample in samples])),
            full_ms=times["full"],
            reuse_ram_ms=times["reuse_ram"],
            reuse_disk_ms=times["reuse_disk"],
            sdpa_ms=median([sample.sdpa_ms for sample in samples]),
            floor_ms=floor_ms,
            breakdown={
                name: {part: median([sample.timing[name][part] for sample in samples]) for part in _PARTS}
                for name in names
            },
            facts=facts,
        )

    def as_json(self) -> dict[str, Any]:
        """The object that `bench ttft --json` prints."""
        return {
            "chunks": self.chunks,
            "prompt_tokens": self.prompt_tokens,
            "full_ms": self.full_ms,
            "reuse_ram_ms": self.reuse_ram_ms,
            "reuse_disk_ms": self.reuse_disk_ms,
            "ratio_ram": self.ratio_ram,
            "ratio_disk": self.ratio_disk,
            "floor_ms": self.floor_ms,
            "sdpa_ms": self.sdpa_ms,
            "full_over_sdpa": self.full_ms / self.sdpa_ms,
            "breakdown": self.breakdown,
            **self.facts,
        }
