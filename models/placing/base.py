"""The contract of placing: decode a block and put it, rotated, into its slots of the arena."""

from abc import ABC, abstractmethod

import torch

from models.arena import Arena
from storage.blocks import EncodedBlock


class Placer(ABC):
    """Writes `[start, start + tokens)` of every layer and nothing else. Several may run at once on other slots.

    Keys are rotated to their positions in float32 and rounded once to the arena's dtype; values are only decoded.
    The block is not changed.
    """

    name: str

    @abstractmethod
    def serves(self, block: EncodedBlock, arena: Arena) -> bool:
        """Whether this placer can place such a block into such an arena. Always safe to ask."""

    @abstractmethod
    def place(self, block: EncodedBlock, arena: Arena, start: int, cos: torch.Tensor, sin: torch.Tensor) -> None:
        """Place a block whose first token stands at `start`; tables `[positions, head_dim]` float32 reach its end."""
