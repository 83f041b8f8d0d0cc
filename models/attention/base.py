"""What attention over the arena is given: where the queries of a forward pass stand."""

from collections.abc import Callable
from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class AttentionChoice:
    """The name registered with transformers, the name for people, and why."""

    implementation: str
    name: str
    reason: str


@dataclass(frozen=True)
class QueryRows:
    """Where the queries of one forward pass stand: `positions` int64 `[queries]`, ascending.

    `first` is the first position when they are contiguous, else None.
    """

    positions: torch.Tensor
    first: int | None


@dataclass(frozen=True)
class BatchRows:
    """Several requests in one forward pass: the rows of each, in order, one part an arena (models/batching.py)."""

    parts: tuple[QueryRows, ...]

    @property
    def positions(self) -> torch.Tensor:
        """All positions int64 `[total_rows]`, part after part."""
        return torch.cat([part.positions for part in self.parts])

    def slices(self) -> tuple[slice, ...]:
        """The rows of each part among all rows."""
        found, begin = [], 0
        for part in self.parts:
            found.append(slice(begin, begin + len(part.positions)))
            begin = found[-1].stop
        return tuple(found)


# Query `[1, heads, queries, head_dim]`, key and value `[1, kv_heads, slots, head_dim]`, rows and scale give
# `[1, heads, queries, head_dim]`: the signature of every path and of its twin.
Attend = Callable[[torch.Tensor, torch.Tensor, torch.Tensor, QueryRows, float], torch.Tensor]
