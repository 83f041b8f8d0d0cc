"""Steps replayed as graphs: one launch a token instead of hundreds (DESIGN.md §8, CUDA graphs over the arena)."""

import warnings
import weakref
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

import torch

from models.arena import Arena
from models.stepping.base import Runner

# Captures a step and returns what does it again (cuda_graph.py; tests put their own here).
Capture = Callable[[Callable[[], None]], Callable[[], None]]
# Some buckets of each arena that the scheduler has. The graphs share their memory for intermediate results.
MOST_GRAPHS = 24
_FAILURES = (RuntimeError, ValueError, TypeError)


@dataclass(frozen=True)
class _Captured:
    """A graph holds addresses, so it is for these very tensors; it must not keep a grown arena's old ones alive."""

    keys: weakref.ref[torch.Tensor]
    values: weakref.ref[torch.Tensor]
    held: object
    replay: Callable[[], None]

    def serves(self, arena: Arena) -> bool:
        return self.keys() is arena.keys and self.values() is arena.values


class GraphRunner(Runner):
    """Captures a step once for each arena's storage and bucket. What cannot be captured is run eagerly ever after."""

    def __init__(self, capture: Capture, reason: str) -> None:
        self.name, self.reason = "graph", reason
        self.probing = False  # then who probes tells what came of it
        self._capture = capture
        self._graphs: OrderedDict[tuple[int, int], _Captured] = OrderedDict()

    def __len__(self) -> int:
        """Graphs that are kept."""
        return len(self._graphs)

    def run(self, step: Callable[[], None], arena: Arena, slots: int, held: object) -> None:
        """As `Runner.run`. Warns once where capturing fails; `name` and `reason` tell it from then on."""
        replay = self._replay(step, arena, slots, held) if self.name == "graph" else None
        (replay or step)()

    def _replay(self, step: Callable[[], None], arena: Arena, slots: int, held: object) -> Callable[[], None] | None:
        key = (id(arena), slots)
        found = self._graphs.get(key)
        if found is not None and found.serves(arena):
            self._graphs.move_to_end(key)
            return found.replay
        for other, graph in list(self._graphs.items()):  # of arenas that are gone or have grown
            if graph.keys() is None or graph.values() is None or other == key:
                del self._graphs[other]
        try:
            replay = self._capture(step)
        except _FAILURES as error:
            self._give_up(error)
            return None
        self._graphs[key] = _Captured(weakref.ref(arena.keys), weakref.ref(arena.values), held, replay)
        if len(self._graphs) > MOST_GRAPHS:
            self._graphs.popitem(last=False)
        return replay

    def _give_up(self, error: Exception) -> None:
        lines = str(error).strip().splitlines()
        self._graphs.clear()
        self.name = "eager"
        self.reason = f"a step cannot be captured ({lines[0][:200] if lines else type(error).__name__})"
        if not self.probing:
            warnings.warn(f"decoding goes on without CUDA graphs: {self.reason}", RuntimeWarning, stacklevel=2)
