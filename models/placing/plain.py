"""Placing in plain torch: serves every codec, dtype and device; the twin every fast path is measured against."""

import torch

from models.arena import Arena
from models.placing.base import Placer, checked_layers
from models.rotary import rotate
from storage.blocks import EncodedBlock


class PlainPlacer(Placer):
    name = "plain"

    def serves(self, block: EncodedBlock, arena: Arena) -> bool:
        return True

    def place(
        self,
        block: EncodedBlock,
        arena: Arena,
        start: int,
        cos: torch.Tensor,
        sin: torch.Tensor,
        layers: range | None = None,
    ) -> None:
        run = checked_layers(block, arena, start, min(len(cos), len(sin)), layers)
        end = start + block.header.tokens
        keys, values = block.decode(arena.device, run)
        arena.keys[run.start : run.stop, :, start:end] = rotate(keys, cos[start:end], sin[start:end]).to(arena.dtype)
        arena.values[run.start : run.stop, :, start:end] = values.to(arena.dtype)
