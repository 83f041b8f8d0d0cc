"""Placing on the CPU by the compiled loops (see loops.py and vector_loops.py): the fast path of every codec."""

import numpy as np
import torch

from models.arena import Arena
from models.placing.base import Placer, checked_layers
from models.placing.loops import LARGEST_HEAD_DIM, place_side
from models.placing.recipes import recipes
from models.placing.vector_loops import fits_vectors, place_side_by_vectors
from storage.blocks import EncodedBlock

_UNSIGNED = {torch.float32: (torch.int32, np.uint32), torch.bfloat16: (torch.int16, np.uint16)}


class CompiledPlacer(Placer):
    """`vectors`: where they serve, rows are placed by the explicit vector code; False: always by the plain loops."""

    name = "compiled"

    def __init__(self, vectors: bool = True) -> None:
        self._vectors = vectors

    def serves(self, block: EncodedBlock, arena: Arena) -> bool:
        header = block.header
        here = arena.device.type == "cpu" and (block.device_data is None or block.device_data.device.type == "cpu")
        known = recipes(header.geometry, header.tokens, header.key_codec, header.value_codec) is not None
        fits = header.geometry == arena.geometry and header.geometry.head_dim <= LARGEST_HEAD_DIM
        return here and known and fits and arena.dtype in _UNSIGNED

    def place(
        self,
        block: EncodedBlock,
        arena: Arena,
        start: int,
        cos: torch.Tensor,
        sin: torch.Tensor,
        layers: range | None = None,
    ) -> None:
        run = checked_layers(block, arena, start, min(len(cos), len(sin)), layers)  # the loops check no bounds
        header = block.header
        found = recipes(header.geometry, header.tokens, header.key_codec, header.value_codec)
        if found is None:
            raise ValueError(f"codec {header.codec} has no compiled loop: ask `serves` first")
        data = block.data if block.device_data is None else block.device_data.numpy()
        shape = (header.layout.layer_bytes, run.start, run.stop, header.tokens, start)
        tables = (cos.numpy(), sin.numpy())
        vectors = self._vectors and arena.dtype == torch.bfloat16 and cos.is_contiguous() and sin.is_contiguous()
        for recipe, rotated, side in ((found[0], True, arena.keys), (found[1], False, arena.values)):
            known = vectors and fits_vectors(recipe, header.geometry.head_dim, rotated) and side.stride(3) == 1
            loop = place_side_by_vectors if known else place_side
            loop(data, recipe, *shape, rotated, *tables, _as_integers(side))


def _as_integers(tensor: torch.Tensor) -> np.ndarray:
    """The same memory as unsigned integers of the element's width; numpy has no bfloat16."""
    signed, unsigned = _UNSIGNED[tensor.dtype]
    array: np.ndarray = tensor.view(signed).numpy().view(unsigned)
    return array
