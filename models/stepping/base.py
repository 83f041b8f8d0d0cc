"""The contract of decode steps of unchanging shapes: what runs one, and the token that is still on its way.

A step takes token and position from fixed places in the device's memory, writes its slot by `index_copy_`, reads the
slots up to the position that stands there, and leaves logits and the likeliest token in fixed places. The only shape
that depends on the position is the number of slots attention may look at: a bucket, so that few different steps exist.
Hooks on the model's modules are not called when a graph is replayed: who listens to them runs models/forward.py.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable

import torch

from models.arena import Arena
from models.loading import LanguageModel

DECODINGS = ("auto", "graph", "eager", "plain")
SMALLEST_BUCKET_SLOTS = 256
# Model, arena, slots, what the first layer takes `[1, hidden]` and the position int64 `[1]` on the device give
# `[1, hidden]` after the last norm. The row's keys and values are in its slot afterwards. Rotary tables reach over all
# of the arena already.
LayerPass = Callable[[LanguageModel, Arena, int, torch.Tensor, torch.Tensor], torch.Tensor]


def bucket_slots(position: int, capacity: int) -> int:
    """How many slots a step at `position` may look at: a power of two, 256 or more, or all of the arena.

    Raises ValueError where the arena has no such slot: in the device's memory nothing would check it.
    """
    if not 0 <= position < capacity:
        raise ValueError(f"position {position} is no slot of an arena of {capacity}: reserve more")
    return min(max(SMALLEST_BUCKET_SLOTS, 1 << position.bit_length()), capacity)


class Runner(ABC):
    """Runs steps on the current stream. `name` and `reason` (one line) say how, and why so."""

    name: str
    reason: str

    @abstractmethod
    def run(self, step: Callable[[], None], arena: Arena, slots: int, held: object) -> None:
        """Do what `step()` does: a step over `arena` and so many slots, which may be done several times over.

        `held`: what the step reads besides arena and weights, to be kept as long as the step may be done again.
        """


class Pending:
    """A token that a step chooses: it is on its way to the host."""

    def __init__(self, turn: int, chosen: torch.Tensor) -> None:
        """`chosen` int64 `[1]`, on the device; `turn` numbers the step among all that used its places."""
        self.turn = turn
        self._event: torch.cuda.Event | None = None
        if chosen.device.type == "cuda":
            self._told = torch.empty(1, dtype=torch.int64, pin_memory=True)
            self._told.copy_(chosen, non_blocking=True)
            self._event = torch.cuda.Event()  # type: ignore[no-untyped-call]
            self._event.record()
        else:
            self._told = chosen.clone()

    def wait(self) -> None:
        """Until the step is done."""
        if self._event is not None:
            self._event.synchronize()

    def read(self) -> int:
        """The token; waits for it."""
        self.wait()
        return int(self._told)
