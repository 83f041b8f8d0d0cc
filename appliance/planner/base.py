"""Load or compute: what the planner knows of this computer, what it is asked, and what it decides.

`auto` must never be slower than reading everything again (DESIGN.md §8.3). The planner predicts; where a prediction
fails because the disk stalls, the executor overtakes the loads (models/executor.py), so that the worst case is the
time waited and then what `full` takes.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

DISK = "disk"


@dataclass(frozen=True)
class Rates:
    """Times of this computer with this model, in milliseconds.

    A pass over `rows` tokens with `past` slots before them takes `pass_ms + rows * row_ms + rows * (past + rows / 2) *
    pair_ms`. A load takes `block_ms` a block, its bytes at `disk_bytes_per_ms` where it lies on disk, and its tokens at
    `place_tokens_per_ms`.
    """

    pass_ms: float
    row_ms: float
    pair_ms: float
    disk_bytes_per_ms: float
    block_ms: float
    place_tokens_per_ms: float

    def pass_takes_ms(self, rows: int, past: int) -> float:
        """Time of one forward pass."""
        return self.pass_ms + rows * (self.row_ms + (past + rows / 2) * self.pair_ms) if rows else 0.0

    def as_json(self) -> dict[str, float]:
        return asdict(self)


@dataclass(frozen=True)
class ChunkCost:
    """A chunk of the prompt as the planner sees it; `tier` is None where it has no block."""

    tokens: int
    size_bytes: int = 0
    tier: str | None = None


@dataclass(frozen=True)
class Decision:
    """`choice` is `load`, `compute` or `split`; `computed` are the chunks (prompt order) computed with the prompt.

    `forecast_ms` has the times expected: `chosen`, `load` (everything that can be loaded), `full`. Blocks that have
    not come after `overtake_after_ms` are computed as well. `load_ms` (of which `disk_ms` for reading) and `compute_ms`
    are what the loader and the passes of the chosen plan (over `compute_tokens`) are expected to take; 0 where nothing
    is to be learnt from what they took.
    """

    choice: str
    computed: tuple[int, ...]
    overtake_after_ms: float
    reason: str
    forecast_ms: Mapping[str, float] = field(default_factory=dict)
    load_ms: float = 0.0
    disk_ms: float = 0.0
    compute_ms: float = 0.0
    compute_tokens: int = 0
    planning_ms: float = 0.0

    def as_json(self) -> dict[str, Any]:
        """What `ask --json` shows as `plan`."""
        return {
            "choice": self.choice,
            "reason": self.reason,
            "computed_chunks": list(self.computed),
            "overtake_after_ms": round(self.overtake_after_ms, 3),
            "forecast_ms": {name: round(value, 3) for name, value in self.forecast_ms.items()},
            "planning_ms": round(self.planning_ms, 4),
        }
