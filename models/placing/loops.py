"""The compiled loops of placing: each walks a block once, where torch would walk and allocate a dozen times.

They run on one thread without the interpreter's lock; the caller runs several at once on different blocks, so no
second thread pool competes with torch's. `out` is the arena's memory seen as unsigned integers: uint32 for float32,
uint16 for bfloat16 (rounded to the nearest, ties to even). A block comes as its flat bytes: `layer_bytes` from layer
to layer, each part at its offset. No closures here: numba could not find them again in its cache.
"""

from typing import Any

import numba
import numpy as np

_COMPILE: dict[str, Any] = {"nogil": True, "cache": True, "error_model": "numpy", "boundscheck": False}


@numba.njit(inline="always", **_COMPILE)
def _store(bits: np.ndarray, out: np.ndarray) -> None:
    """Float32 bits `[head_dim]` into a row of the arena."""
    if out.itemsize == 4:
        for j in range(bits.shape[0]):
            out[j] = bits[j]
    else:
        for j in range(bits.shape[0]):
            word = bits[j]
            out[j] = (word + np.uint32(0x7FFF) + ((word >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)


@numba.njit(**_COMPILE)
def place_int8_keys(
    codes: np.ndarray, scales: np.ndarray, layer_bytes: int, codes_at: int, scales_at: int, tokens: int,
    start: int, cos: np.ndarray, sin: np.ndarray, out: np.ndarray,
) -> None:  # fmt: skip
    """Codes int8 and scales float32 (both views of the whole block) to rotated keys in `out[layer, head, slot]`."""
    layers, heads, _, dim = out.shape
    half = dim // 2
    row = np.empty(dim, np.float32)
    bits = row.view(np.uint32)
    for layer in range(layers):
        for head in range(heads):
            first = layer * layer_bytes + codes_at + head * tokens * dim
            scale_first = (layer * layer_bytes + scales_at) // 4 + head * dim
            scale = scales[scale_first : scale_first + dim]
            for token in range(tokens):
                code = codes[first + token * dim : first + (token + 1) * dim]
                c, s = cos[start + token], sin[start + token]
                for j in range(half):
                    low = np.float32(code[j]) * scale[j]
                    high = np.float32(code[j + half]) * scale[j + half]
                    row[j] = low * c[j] - high * s[j]
                    row[j + half] = high * c[j + half] + low * s[j + half]
                _store(bits, out[layer, head, start + token])


@numba.njit(**_COMPILE)
def place_int8_values(
    codes: np.ndarray, scales: np.ndarray, layer_bytes: int, codes_at: int, scales_at: int, tokens: int,
    start: int, out: np.ndarray,
) -> None:  # fmt: skip
    """Codes int8 and one scale a token to values in `out[layer, head, slot]`."""
    layers, heads, _, dim = out.shape
    row = np.empty(dim, np.float32)
    bits = row.view(np.uint32)
    for layer in range(layers):
        for head in range(heads):
            first = layer * layer_bytes + codes_at + head * tokens * dim
            scale_first = (layer * layer_bytes + scales_at) // 4 + head * tokens
            for token in range(tokens):
                code = codes[first + token * dim : first + (token + 1) * dim]
                scale = scales[scale_first + token]
                for j in range(dim):
                    row[j] = np.float32(code[j]) * scale
                _store(bits, out[layer, head, start + token])
