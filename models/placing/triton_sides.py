"""A side's recipe as the constants that the Triton kernel is compiled for."""

from typing import NamedTuple

from models.placing import recipes as forms
from models.placing.recipes import Recipe
from models.placing.triton_decoding import (
    KIND_BF16,
    KIND_F32,
    KIND_FLOAT8,
    KIND_GROUPED,
    KIND_GSE,
    KIND_INT8,
    KIND_INT8T,
    KIND_ROTATED,
)

_WITHOUT_NUMBERS = {
    forms.FLOAT32: KIND_F32,
    forms.BFLOAT16: KIND_BF16,
    forms.SIGNED8: KIND_INT8,
    forms.UNSIGNED8: KIND_INT8T,
}


class Side(NamedTuple):
    """How one side is decoded: `first` and `second` are bits, fraction bits, step or group, as the kind has them."""

    kind: int
    first: int
    second: int
    row_bytes: int
    offsets_bytes: tuple[int, int, int]
    """Codes, scale and zero from the beginning of the layer; 0 for what the codec has not."""


def side_of(recipe: Recipe) -> Side:
    """The constants of one side of a block."""
    offsets = (recipe.codes_at, max(0, recipe.scale_at), max(0, recipe.zero_at))
    return Side(*_numbers(recipe), recipe.row_bytes, offsets)


def _numbers(recipe: Recipe) -> tuple[int, int, int]:
    if recipe.kind in _WITHOUT_NUMBERS:
        return _WITHOUT_NUMBERS[recipe.kind], 0, 0
    if recipe.kind == forms.FLOAT8:
        return KIND_FLOAT8, recipe.fraction_bits, 0
    if recipe.kind == forms.GSE8:
        return KIND_GSE, recipe.fraction_bits, recipe.step
    bits = forms.PACKED_BITS[recipe.kind]
    if recipe.scaling == forms.ROTATED:
        return KIND_ROTATED, bits, 0
    return KIND_GROUPED, bits, recipe.group
