"""The contract of a strategy: how a prompt's KV is put together (DESIGN.md §3, strategy and plan).

A strategy only decides; `models.executor` carries out every plan. To add one: write a file beside this one, add it to
`STRATEGIES` in `__init__.py`; the exactness tests of `tests/models` take it up.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum

import numpy as np

from models.errors import StrategyRefused
from models.prompt import Prompt
from models.selection import SELECTS, ChunkFacts, Selector

DEFAULT_RATIO = 0.15
DEFAULT_SELECT = "spread"


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

    `recompute` is ascending int64; those rows attend to everything before their true position. `selector` names more
    of them once every chunk is there; it is told `facts`, one for each chunk. Where `overtake_after_ms` is set, blocks
    that have not come by then are overtaken: computed with the prompt from the front while others still load from the
    end (Cake, arXiv 2410.03065); without it every load is waited for.
    """

    strategy: str
    segments: tuple[Segment, ...]
    recompute: np.ndarray
    overtake_after_ms: float | None = None
    selector: Selector | None = None
    facts: tuple[ChunkFacts, ...] = field(default=(), repr=False)

    def rows(self) -> np.ndarray:
        """Positions of the pass: all computed segments and the recomputed rows, ascending int64 `[rows]`."""
        runs = [np.arange(s.start, s.start + s.tokens) for s in self.segments if s.origin is Origin.COMPUTE]
        return np.unique(np.concatenate([*runs, self.recompute]).astype(np.int64))

    @property
    def tokens(self) -> int:
        return sum(segment.tokens for segment in self.segments)


NOTHING = np.empty(0, dtype=np.int64)


@dataclass(frozen=True)
class StrategyOptions:
    """What the user may choose of a strategy. Raises StrategyRefused.

    `ratio`: the share of the chunk tokens that is computed again; `select`: how `fusion` chooses them.
    """

    ratio: float = DEFAULT_RATIO
    select: str = DEFAULT_SELECT

    def __post_init__(self) -> None:
        if not 0.0 <= self.ratio <= 1.0:
            raise StrategyRefused(f"ratio {self.ratio:g} is not a share of the tokens: choose 0 to 1")
        if self.select not in SELECTS:
            raise StrategyRefused(f"selection {self.select!r} is unknown: choose one of {', '.join(SELECTS)}")


class Strategy(ABC):
    """Pure: reads the prompt's lengths and ids, touches no tensor."""

    name: str
    near = False
    """Whether it takes blocks computed after their neighbours, where there are any (FusionRAG's offline stage)."""

    def __init__(self, options: StrategyOptions | None = None) -> None:
        self.options = options or StrategyOptions()

    @abstractmethod
    def plan(self, prompt: Prompt, facts: Sequence[ChunkFacts] = ()) -> Plan:
        """The plan for a prompt. The tail is always computed; every chunk is one segment."""


class SelectingStrategy(Strategy):
    """Every chunk's stored KV, and a part of its tokens computed again with the tail."""

    def plan(self, prompt: Prompt, facts: Sequence[ChunkFacts] = ()) -> Plan:
        segments = lay_out(prompt, Origin.HEAD, Origin.BLOCK)
        return Plan(self.name, segments, NOTHING, selector=self.selector(), facts=tuple(facts))

    @abstractmethod
    def selector(self) -> Selector:
        """Which tokens those are."""


def lay_out(prompt: Prompt, head: Origin, chunks: Origin) -> tuple[Segment, ...]:
    """Head, chunks and tail as segments of the given origins."""
    segments = [Segment(0, len(prompt.head), head)]
    for index, chunk in enumerate(prompt.chunks):
        start = segments[-1].start + segments[-1].tokens
        segments.append(Segment(start, len(chunk), chunks, index))
    start = segments[-1].start + segments[-1].tokens
    segments.append(Segment(start, len(prompt.tail), Origin.COMPUTE))
    return tuple(segments)
