"""The contract of placing: decode a block and put it, rotated, into its slots of the arena."""

from abc import ABC, abstractmethod

import torch

from models.arena import Arena
from storage.blocks import EncodedBlock


class Placer(ABC):
    """Writes `[start, start + tokens)` of the layers asked for and nothing else. Several may run at once on other
    slots or layers.

    Keys are rotated to their positions in float32 and rounded once to the arena's dtype; values are only decoded.
    The block is not changed.
    """

    name: str

    @abstractmethod
    def serves(self, block: EncodedBlock, arena: Arena) -> bool:
        """Whether this placer can place such a block into such an arena. Always safe to ask."""

    @abstractmethod
    def place(
        self,
        block: EncodedBlock,
        arena: Arena,
        start: int,
        cos: torch.Tensor,
        sin: torch.Tensor,
        layers: range | None = None,
    ) -> None:
        """Place a block whose first token stands at `start`; tables `[positions, head_dim]` float32 reach its end.

        `layers` is a run of layers, the only ones read and written; None: all. Raises ValueError where slots,
        tables or layers are not there.
        """


def checked_layers(block: EncodedBlock, arena: Arena, start: int, positions: int, layers: range | None) -> range:
    """The layers to place; ValueError where they, the slots or the `positions` of the tables do not reach."""
    end = start + block.header.tokens
    if not 0 <= start < end <= min(arena.capacity, positions):
        raise ValueError(f"slots {start} to {end} are not in an arena of {arena.capacity} slots")
    count = block.header.geometry.layers
    run = range(count) if layers is None else layers
    if run.step != 1 or not 0 <= run.start <= run.stop <= count:
        raise ValueError(f"layers {run} are no run of the block's {count} layers")
    return run
