"""Placing on the CPU by the compiled loops (see loops.py): the fast path of `int8`."""

import numpy as np
import torch

from models.arena import Arena
from models.placing.base import Placer
from models.placing.loops import place_int8_keys, place_int8_values
from storage.blocks import EncodedBlock

_UNSIGNED = {torch.float32: (torch.int32, np.uint32), torch.bfloat16: (torch.int16, np.uint16)}


class CompiledPlacer(Placer):
    name = "compiled"

    def serves(self, block: EncodedBlock, arena: Arena) -> bool:
        header = block.header
        alike = header.codec == "int8" and header.geometry == arena.geometry
        return alike and arena.device.type == "cpu" and arena.dtype in _UNSIGNED

    def place(self, block: EncodedBlock, arena: Arena, start: int, cos: torch.Tensor, sin: torch.Tensor) -> None:
        end = start + block.header.tokens
        if not 0 <= start < end <= min(arena.capacity, len(cos), len(sin)):  # the loops check no bounds
            raise ValueError(f"slots {start} to {end} are not in an arena of {arena.capacity} slots")
        layout = block.header.layout
        codes = block.data.view(np.int8)
        scales = block.data.view(np.float32)
        tokens, step = block.header.tokens, layout.layer_bytes
        places = (layout.offset_of("k", "codes"), layout.offset_of("k", "scale"))
        place_int8_keys(codes, scales, step, *places, tokens, start, cos.numpy(), sin.numpy(), _as_integers(arena.keys))
        places = (layout.offset_of("v", "codes"), layout.offset_of("v", "scale"))
        place_int8_values(codes, scales, step, *places, tokens, start, _as_integers(arena.values))


def _as_integers(tensor: torch.Tensor) -> np.ndarray:
    """The same memory as unsigned integers of the element's width; numpy has no bfloat16."""
    signed, unsigned = _UNSIGNED[tensor.dtype]
    array: np.ndarray = tensor.view(signed).numpy().view(unsigned)
    return array
