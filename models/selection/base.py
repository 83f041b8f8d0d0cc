"""The contract of a selection: which chunk tokens are computed again with the tail, once every chunk is there.

A selector sees the stitched prompt and names positions; the executor computes them and the whole tail in one sparse
pass, masked by true position. It may write to slots of the arena at or after the tail (they are computed afterwards)
and, where it returns `hidden`, to the layers it has computed; placed blocks are copies, so nothing stored changes. To
add one: a file beside this one, and a strategy that names it.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch

from models.arena import Arena
from models.loading import LanguageModel
from models.prompt import Prompt


@dataclass(frozen=True)
class ChunkFacts:
    """What is known of a chunk's block before it is loaded.

    `exact`: it attended to just what stands before it in this prompt, so computing it again changes nothing.
    `outside_mass`: float32 `[tokens]`, the attention each token paid outside its own chunk when it was recorded
    (Cache-Craft), None where nothing was.
    """

    exact: bool = False
    outside_mass: np.ndarray | None = field(default=None, repr=False)


@dataclass(frozen=True)
class Stitched:
    """A prompt whose head and chunks are in the arena. `starts`: the first position of each chunk.

    `scratch` has room for the head and the question, and nothing of value in it.
    """

    model: LanguageModel
    arena: Arena
    scratch: Arena
    head_keys: torch.Tensor
    head_values: torch.Tensor
    prompt: Prompt
    facts: Sequence[ChunkFacts]
    budget_tokens: int

    @property
    def first(self) -> int:
        """Where the chunks begin."""
        return len(self.prompt.head)

    @property
    def end(self) -> int:
        """Where they end and the tail begins."""
        return self.prompt.tokens - len(self.prompt.tail)

    @property
    def starts(self) -> list[int]:
        """The first position of each chunk."""
        return [int(start) for start in np.cumsum([self.first, *map(len, self.prompt.chunks)])[:-1]]

    def candidates(self) -> np.ndarray:
        """Boolean `[chunk tokens]`: what may be chosen; of exact chunks nothing, unless the budget is for all."""
        total = self.end - self.first
        if self.budget_tokens >= total:
            return np.ones(total, dtype=bool)
        exact = [facts.exact for facts in self.facts] or [False] * len(self.prompt.chunks)
        return np.repeat(~np.asarray(exact, dtype=bool), [len(chunk) for chunk in self.prompt.chunks])


@dataclass(frozen=True)
class Selected:
    """Positions to compute again, ascending int64.

    Where layers below `first_layer` were computed already, `hidden` are the hidden states `[queries, hidden]` that
    enter it, of the selected rows and all rows of the tail, in order.
    """

    positions: np.ndarray
    first_layer: int = 0
    hidden: torch.Tensor | None = None


class Selector(ABC):
    """One method of choosing. `ratio`: the share of the chunk tokens that may be computed again, 0 to 1."""

    def __init__(self, ratio: float) -> None:
        self.ratio = ratio

    def budget_tokens(self, prompt: Prompt) -> int:
        """k = ceil(ratio x chunk tokens) (FusionRAG §4.2)."""
        return math.ceil(self.ratio * sum(map(len, prompt.chunks)) - 1e-9)

    def prepare(self, stitched: Stitched) -> torch.Tensor | None:
        """What needs no block: done while they load; handed to `choose`. The arena must not be touched."""
        return None

    @abstractmethod
    def choose(self, stitched: Stitched, prepared: torch.Tensor | None) -> Selected:
        """The positions, at most `budget_tokens` of them, all inside the chunks."""


def highest(scores: np.ndarray, stitched: Stitched, forced: np.ndarray | None = None) -> np.ndarray:
    """Positions of the highest scores `[chunk tokens]` among the candidates, within the budget, ascending.

    `forced` (boolean, same shape) come first, by their order, as far as the budget goes. Ties: the earlier token.
    """
    allowed = stitched.candidates()
    first = np.flatnonzero(allowed & forced)[: stitched.budget_tokens] if forced is not None else np.empty(0, np.int64)
    rest = allowed.copy()
    rest[first] = False
    order = np.flatnonzero(rest)
    best = order[np.argsort(-scores[order], kind="stable")][: stitched.budget_tokens - len(first)]
    return np.sort(np.concatenate([first, best])).astype(np.int64) + stitched.first
