# mypy: disallow-untyped-decorators=False
"""What both walks over keys and values are given (loops.py, few_lanes.py), and what both do."""

# Calls: 5abe7d059e10
from typing import Any

import numba
import numpy as np
from numba.np.numpy_support import carray

from models.attention.llvm import pointer

# Addresses and distances in bytes; `counters`: int64, items taken and then splits finished by unit; `few`: 0 or 1.
_NUMBERS = (
    "counters", "items", "splits", "blocks", "block_rows", "rows", "group", "kv_heads", "head_dim", "slots",
    "log_scale", "query", "key", "value", "positions", "out", "partial", "query_head", "query_row", "key_head",
    "key_row", "value_head", "value_row", "out_head", "out_row", "few", "partial_bytes",
    "scratch_bytes",
)  # fmt: skip
JOB = np.dtype([(name, np.int64) for name in _NUMBERS])
COMPILE: dict[str, Any] = {"nogil": True, "cache": True, "error_model": "numpy", "boundscheck": False}
ENDLESS = (1 << 40,)  # arrays over addresses have no end of their own
Address = int
Job = Any
_U16, _U32, _F32 = np.uint16, np.uint32, np.float32


@numba.njit(**COMPILE)
def copy_rows(rows: Address, row_bytes: int, count: int, tile_keys: int, dim: int, to: Address) -> None:
    """`count` rows of a tile `[tile_keys][dim]` of bfloat16, zeros behind them."""
    tile = carray(pointer(to), ENDLESS, np.uint16)
    for number in range(count):
        tile[number * dim : (number + 1) * dim] = carray(pointer(rows + number * row_bytes), (dim,), np.uint16)
    tile[count * dim : tile_keys * dim] = _U16(0)


@numba.njit(**COMPILE)
def rounded(number: Any) -> Any:
    """A float32 as the bits of a bfloat16: the nearest, ties to even."""
    word = _F32(number).view(_U32)
    return _U16((word + _U32(0x7FFF) + ((word >> _U32(16)) & _U32(1))) >> _U32(16))
