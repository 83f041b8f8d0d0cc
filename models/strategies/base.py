"""The contract of a strategy: how a prompt's KV is put together (DESIGN.md §3, strategy and plan).

A strategy only decides; `models.executor` carries out every plan. To add one: write a file beside this one, add it to
`STRATEGIES` in `__init__.py`; the exactness tests of `tests/models` take it up.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from enum import Enum

import numpy as np

from models.prompt import Prompt


class Origin(Enum):
    """Where a segment's keys and values come from."""

    HEAD = "head"  # the head's own KV, computed once for all questions
    BLOCK = "block"  # a stored block; computed by the same function and codec where there is none
    COMPUTE = "compute"  # the pass over this prompt


@dataclass(frozen=True)
class Segment:
    """A run of the prompt: slots `[start, start + tokens)`. `chunk` is its index in `Prompt.chunks`, if it is one."""

    start: int
    tokens: int
    origin: Origin
    chunk: int | None = None


@dataclass(frozen=True)
class Plan:
    """Segments in prompt order, covering it without gap, and positions inside placed segments to compute again.

    `recompute` is ascending int64; those rows attend to everything before their true position. Where
    `overtake_after_ms` is set, blocks that have not come by then are overtaken: computed with the prompt from the
    front while others still load from the end (Cake, arXiv 2410.03065); without it every load is waited for.
    """

    strategy: str
    segments: tuple[Segment, ...]
    recompute: np.ndarray
    overtake_after_ms: float | None = None

    def rows(self) -> np.ndarray:
        """Positions of the pass: all computed segments and the recomputed rows, ascending int64 `[rows]`."""
        runs = [np.arange(s.start, s.start + s.tokens) for s in self.segments if s.origin is Origin.COMPUTE]
        return np.unique(np.concatenate([*runs, self.recompute]).astype(np.int64))

    @property
    def tokens(self) -> int:
        return sum(segment.tokens for segment in self.segments)


NOTHING = np.empty(0, dtype=np.int64)


class Strategy(ABC):
    """Pure: reads the prompt's lengths and ids, touches no tensor."""

    name: str

    @abstractmethod
    def plan(self, prompt: Prompt) -> Plan:
        """The plan for a prompt. The tail is always computed; every chunk is one segment."""


def lay_out(prompt: Prompt, head: Origin, chunks: Origin) -> tuple[Segment, ...]:
    """Head, chunks and tail as segments of the given origins."""
    segments = [Segment(0, len(prompt.head), head)]
    for index, chunk in enumerate(prompt.chunks):
        start = segments[-1].start + segments[-1].tokens
        segments.append(Segment(start, len(chunk), chunks, index))
    start = segments[-1].start + segments[-1].tokens
    segments.append(Segment(start, len(prompt.tail), Origin.COMPUTE))
    return tuple(segments)
