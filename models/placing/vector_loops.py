# mypy: disallow-untyped-decorators=False
"""`place_side` of loops.py, its twin, for bfloat16 arenas and rows of whole units (see vectors.py): the same bytes.

numba's cache watches the text of this file only, so it names a digest of what it calls.
"""

# Calls: cf45a7e050f6

import numba
import numpy as np

from models.placing import recipes as forms
from models.placing.unpacking import COMPILE
from models.placing.vectors import KINDS, UNIT_HALF, keys_unit, values_unit

Array = np.ndarray
Recipe = forms.Recipe


def fits_vectors(recipe: Recipe, head_dim: int, rotated: bool) -> bool:
    """Whether `place_side_by_vectors` knows such a side of a block."""
    if recipe.kind not in KINDS or head_dim % (2 * UNIT_HALF):
        return False
    if recipe.kind == forms.BFLOAT16:
        return True
    if rotated:
        return recipe.scaling == forms.BY_CHANNEL
    return recipe.scaling == forms.BY_TOKEN and recipe.group % UNIT_HALF == 0


@numba.njit(**COMPILE)
def place_side_by_vectors(
    data: Array, recipe: Recipe, layer_bytes: int, first_layer: int, end_layer: int, tokens: int, start: int,
    rotated: bool, cos: Array, sin: Array, out: Array
) -> None:  # fmt: skip
    """As `place_side`; `out` is uint16, its rows and those of the tables are contiguous."""
    heads, dim = out.shape[1], out.shape[3]
    many = min(recipe.group, tokens) if rotated else tokens  # rows that share their scales, or all
    groups = (tokens + many - 1) // many if rotated else (dim + recipe.group - 1) // recipe.group
    tables = start * cos.strides[0]
    for layer in range(first_layer, end_layer):
        begin = data.ctypes.data + layer * layer_bytes
        for head in range(heads):
            codes = begin + recipe.codes_at + head * tokens * recipe.row_bytes
            slots = out.ctypes.data + layer * out.strides[0] + head * out.strides[1] + start * out.strides[2]
            for first in range(0, tokens, many):
                rows = min(many, tokens - first)
                which = (head * groups + first // many) * dim if rotated else head * tokens * groups
                scale = begin + recipe.scale_at + which * recipe.scale_bytes
                zero = begin + recipe.zero_at + which * recipe.scale_bytes
                for unit in range(dim // (2 * UNIT_HALF)):
                    if rotated:
                        keys_unit(
                            recipe.kind, codes + first * recipe.row_bytes, recipe.row_bytes, dim, unit, rows,
                            scale, zero, cos.ctypes.data + tables + first * cos.strides[0],
                            sin.ctypes.data + tables + first * sin.strides[0], cos.strides[0],
                            slots + first * out.strides[2], out.strides[2],
                        )  # fmt: skip
                    else:
                        values_unit(
                            recipe.kind, codes, recipe.row_bytes, dim, unit, rows, scale, zero,
                            groups * recipe.scale_bytes, recipe.group, slots, out.strides[2],
                        )  # fmt: skip
