"""The compiled loops of placing: each walks a block once, where torch would walk and allocate a dozen times.

A tile of a few tokens of one head is decoded to float32 in the nearest cache by one of the small loops below, then
rotated and rounded (keys) or rounded (values) straight into the arena. Only simple loops over slices vectorise, so
every format is unpacked, and every scaling applied, by a loop of its own; products and sums are those of the plain
twins, in their order, so that the numbers are the same to the last bit.

They run on one thread without the interpreter's lock; the caller runs several at once on different blocks, so no
second thread pool competes with torch's. `out` is the arena's memory seen as unsigned integers: uint32 for float32,
uint16 for bfloat16 (rounded to the nearest, ties to even). A block comes as its flat bytes: `layer_bytes` from layer
to layer, each part at its offset. Codes become numbers in unpacking.py; recipe fields and kinds: see recipes.py.
numba's cache of `place_side` watches the text of this file alone, so it names a digest of both, and has no closures.
"""

# Calls: 301cab8c8178

import numba
import numpy as np

from models.placing import recipes as forms
from models.placing.unpacking import COMPILE, float8, gse8, packed, packed4

TILE_ELEMENTS = 4096  # 16 KiB of float32: less, and slicing costs as much as the loops; more, and the cache is full
TILE_TOKENS = 64  # halved until they fit; groups of tokens are multiples of a tile or divide it
TILE_BYTES = 16384  # of small codes, a byte each
UNTILED_TOKENS = 256
LARGEST_HEAD_DIM = 512

_U8, _U32, _F32 = np.uint8, np.uint32, np.float32
Array = np.ndarray
Recipe = forms.Recipe


@numba.njit(**COMPILE)
def place_side(
    data: Array, recipe: Recipe, layer_bytes: int, first_layer: int, end_layer: int, tokens: int, start: int,
    rotated: bool, cos: Array, sin: Array, out: Array
) -> None:  # fmt: skip
    """Decoded and, keys, rotated into `out[layer, head, start + token]`; tables `[positions, head_dim]` float32."""
    heads, dim = out.shape[1], out.shape[3]
    small = recipe.kind >= forms.PACKED6 and recipe.scaling != forms.ROTATED
    tile_tokens, most = (UNTILED_TOKENS, TILE_BYTES) if small else (TILE_TOKENS, TILE_ELEMENTS)
    while tile_tokens * dim > most:
        tile_tokens //= 2
    if recipe.kind == forms.SIGNED8:  # needs no tile, only a scale a token
        tile_tokens = UNTILED_TOKENS
    tile, spare = np.empty(TILE_ELEMENTS, _F32), np.empty(TILE_BYTES, _U8)
    scales, zeros = np.empty(TILE_ELEMENTS, _F32), np.empty(TILE_ELEMENTS, _F32)
    for layer in range(first_layer, end_layer):
        for head in range(heads):
            for first in range(0, tokens, tile_tokens):
                rows, slot = min(tile_tokens, tokens - first), start + first
                slots, c, s = out[layer, head, slot : slot + rows], cos[slot : slot + rows], sin[slot : slot + rows]
                layer_at = layer * layer_bytes
                begin = layer_at + recipe.codes_at + (head * tokens + first) * recipe.row_bytes
                codes = data[begin : begin + rows * recipe.row_bytes]
                _scales(data, recipe, layer_at, head, tokens, first, rows, dim, scales, zeros)
                if recipe.kind == forms.SIGNED8 and rotated:  # the default codec: in one loop
                    _signed_keys(codes.view(np.int8), scales, tile, c, s, slots)
                elif recipe.kind == forms.SIGNED8:
                    _signed_values(codes.view(np.int8), scales, slots)
                elif recipe.scaling == forms.BY_CHANNEL and rotated:
                    packed(codes, recipe.kind, rows, dim, recipe.row_bytes, spare)
                    _channel_keys(spare, scales, zeros, recipe.group, tile, c, s, slots)
                elif recipe.scaling == forms.BY_TOKEN and not rotated:
                    packed(codes, recipe.kind, rows, dim, recipe.row_bytes, spare)
                    _token_values(spare, scales, zeros, recipe.group, slots)
                else:
                    _decode(codes, recipe, rows, dim, tile, scales, zeros, spare)
                    if rotated:
                        _rotate(tile, c, s, slots)
                    else:
                        _store(tile, slots.reshape(-1))


@numba.njit(inline="always", **COMPILE)
def _scales(
    data: Array, recipe: Recipe, layer_at: int, head: int, tokens: int, first: int, rows: int, dim: int,
    scales: Array, zeros: Array
) -> None:  # fmt: skip
    """The scales and zeros of tokens `[first, first + rows)` of a head as float32."""
    group, index, count = recipe.group, 0, 0
    if recipe.scaling == forms.BY_TENSOR:
        count = 1
    elif recipe.scaling == forms.BY_CHANNEL:
        index = (head * ((tokens + group - 1) // group) + first // group) * dim
        count = ((rows - 1) // group + 1) * dim
    elif recipe.scaling != forms.UNSCALED:
        groups = (dim + group - 1) // group
        index, count = (head * tokens + first) * groups, rows * groups
    at = layer_at + index * recipe.scale_bytes
    _widen(data, at + recipe.scale_at, recipe.scale_bytes, scales[:count])
    if recipe.zero_at >= 0:
        _widen(data, at + recipe.zero_at, recipe.scale_bytes, zeros[:count])


@numba.njit(inline="always", **COMPILE)
def _decode(
    codes: Array, recipe: Recipe, rows: int, dim: int, tile: Array, scales: Array, zeros: Array, spare: Array
) -> None:
    """The codes of `rows` tokens to float32 `tile[rows * dim]`."""
    kind, scaling, tile = recipe.kind, recipe.scaling, tile[: rows * dim]
    if kind == forms.BFLOAT16 or kind == forms.FLOAT32:
        _widen(codes, 0, 2 if kind == forms.BFLOAT16 else 4, tile)
    elif kind == forms.UNSIGNED8:
        for j in range(tile.shape[0]):
            tile[j] = _F32(codes[j]) * scales[0] + zeros[0]
    elif kind == forms.FLOAT8:
        float8(codes, recipe.fraction_bits, tile)
    elif kind == forms.GSE8:
        gse8(codes, recipe.fraction_bits, recipe.step, scales[0], tile)
    elif kind == forms.PACKED4:
        packed4(codes, rows, dim, tile)
    else:
        packed(codes, kind, rows, dim, recipe.row_bytes, spare[: rows * dim])
        for j in range(tile.shape[0]):
            tile[j] = _F32(spare[j])
    if scaling == forms.BY_CHANNEL:
        _affine_by_channel(tile, scales, zeros, rows, dim, recipe.group)
    elif scaling == forms.BY_TOKEN:
        _affine_by_token(tile, scales, zeros, rows, dim, recipe.group)
    elif scaling == forms.ROTATED:
        _rotate_back(tile, scales, zeros, rows, dim)


@numba.njit(inline="always", **COMPILE)
def _widen(data: Array, at: int, width: int, out: Array) -> None:
    """Float32 (`width` 4) or bfloat16 (2) numbers at a byte offset to float32."""
    numbers = data[at : at + width * out.shape[0]]
    if width == 4:
        floats = numbers.view(_F32)  # a loop: numba's slice assignment takes ten times as long
        for j in range(out.shape[0]):
            out[j] = floats[j]
    else:
        words = numbers.view(np.uint16)
        for j in range(out.shape[0]):
            out[j] = _U32(_U32(words[j]) << _U32(16)).view(_F32)


@numba.njit(**COMPILE)
def _affine_by_channel(tile: Array, scales: Array, zeros: Array, rows: int, dim: int, group: int) -> None:
    for row in range(rows):
        at = row // group * dim
        out, scale, zero = tile[row * dim : (row + 1) * dim], scales[at : at + dim], zeros[at : at + dim]
        for j in range(dim):
            out[j] = out[j] * scale[j] + zero[j]


@numba.njit(**COMPILE)
def _affine_by_token(tile: Array, scales: Array, zeros: Array, rows: int, dim: int, group: int) -> None:
    which = 0
    for row in range(rows):
        for begin in range(0, dim, group):
            out = tile[row * dim + begin : row * dim + min(begin + group, dim)]
            scale, zero = scales[which], zeros[which]
            which += 1
            for j in range(out.shape[0]):
                out[j] = out[j] * scale + zero


@numba.njit(**COMPILE)
def _rotate_back(tile: Array, scales: Array, zeros: Array, rows: int, dim: int) -> None:
    """See storage.codecs.hadamard: butterflies of whole numbers, then one scale and zero a token."""
    block = dim & -dim
    _butterflies_of_eight(tile)
    stride = 8
    while stride < block:
        for begin in range(0, tile.shape[0], 2 * stride):
            low, high = tile[begin : begin + stride], tile[begin + stride : begin + 2 * stride]
            for j in range(stride):
                a, b = low[j], high[j]
                low[j] = a + b
                high[j] = a - b
        stride *= 2
    inverse_root, root = _F32(block**-0.5), _F32(block**0.5)
    for row in range(rows):
        out, scale, constant = tile[row * dim : (row + 1) * dim], scales[row] * inverse_root, zeros[row] * root
        for j in range(dim):
            out[j] = out[j] * scale
        for j in range(0, dim, block):
            out[j] += constant


@numba.njit(**COMPILE)
def _butterflies_of_eight(tile: Array) -> None:
    """Strides 4, 2 and 1 at once: written out, and counted by ones, it vectorises."""
    for eight in range(tile.shape[0] // 8):
        i = 8 * eight
        a, b, c, d = tile[i], tile[i + 1], tile[i + 2], tile[i + 3]
        e, f, g, h = tile[i + 4], tile[i + 5], tile[i + 6], tile[i + 7]
        a, b, c, d, e, f, g, h = a + e, b + f, c + g, d + h, a - e, b - f, c - g, d - h
        a, b, c, d, e, f, g, h = a + c, b + d, a - c, b - d, e + g, f + h, e - g, f - h
        tile[i], tile[i + 1], tile[i + 2], tile[i + 3] = a + b, a - b, c + d, c - d
        tile[i + 4], tile[i + 5], tile[i + 6], tile[i + 7] = e + f, e - f, g + h, g - h


@numba.njit(inline="always", **COMPILE)
def _word(number: np.float32, whole: bool) -> np.uint32:
    """Float32's bits, all of them or rounded to bfloat16's."""
    bits = _F32(number).view(_U32)
    return bits if whole else (bits + _U32(0x7FFF) + ((bits >> _U32(16)) & _U32(1))) >> _U32(16)


@numba.njit(**COMPILE)
def _signed_keys(codes: Array, scales: Array, tile: Array, cos: Array, sin: Array, out: Array) -> None:
    """Codes of signed bytes, one scale a channel, decoded, rotated and stored row by row."""
    dim = out.shape[1]
    half, row, whole = dim // 2, tile[:dim], out.itemsize == 4
    for token in range(out.shape[0]):
        code, c, s, slot = codes[token * dim : (token + 1) * dim], cos[token], sin[token], out[token]
        for j in range(half):
            low, high = _F32(code[j]) * scales[j], _F32(code[j + half]) * scales[j + half]
            row[j] = low * c[j] - high * s[j]
            row[j + half] = high * c[j + half] + low * s[j + half]
        for j in range(dim):
            slot[j] = _word(row[j], whole)


@numba.njit(**COMPILE)
def _signed_values(codes: Array, scales: Array, out: Array) -> None:
    """Codes of signed bytes, one scale a token."""
    dim, whole = out.shape[1], out.itemsize == 4
    for token in range(out.shape[0]):
        code, slot, scale = codes[token * dim : (token + 1) * dim], out[token], scales[token]
        for j in range(dim):
            slot[j] = _word(_F32(code[j]) * scale, whole)


@numba.njit(**COMPILE)
def _channel_keys(
    codes: Array, scales: Array, zeros: Array, group: int, tile: Array, cos: Array, sin: Array, out: Array
) -> None:  # fmt: skip
    """A byte a code, a scale and zero for each channel of a group of tokens: scaled, rotated and stored row by row."""
    dim = out.shape[1]
    half, row, whole = dim // 2, tile[:dim], out.itemsize == 4
    for token in range(out.shape[0]):
        at = token // group * dim
        scale, zero = scales[at : at + dim], zeros[at : at + dim]
        code, c, s, slot = codes[token * dim : (token + 1) * dim], cos[token], sin[token], out[token]
        for j in range(half):
            low = _F32(code[j]) * scale[j] + zero[j]
            high = _F32(code[j + half]) * scale[j + half] + zero[j + half]
            row[j] = low * c[j] - high * s[j]
            row[j + half] = high * c[j + half] + low * s[j + half]
        for j in range(dim):
            slot[j] = _word(row[j], whole)


@numba.njit(**COMPILE)
def _token_values(codes: Array, scales: Array, zeros: Array, group: int, out: Array) -> None:
    """A byte a code, a scale and zero for each group of elements of a token. Unsigned indices need no wrapping."""
    dim, whole = np.uint64(out.shape[1]), out.itemsize == 4
    which, first, width = np.uint64(0), np.uint64(0), np.uint64(group)
    for token in range(out.shape[0]):
        slot = out[token]
        begin = np.uint64(0)
        while begin < dim:
            count = min(width, dim - begin)
            scale, zero = scales[which], zeros[which]
            for j in range(count):
                slot[begin + j] = _word(_F32(codes[first + begin + j]) * scale + zero, whole)
            which += np.uint64(1)
            begin += count
        first += dim


@numba.njit(**COMPILE)
def _store(tile: Array, out: Array) -> None:
    whole = out.itemsize == 4
    for j in range(out.shape[0]):
        out[j] = _word(tile[j], whole)


@numba.njit(**COMPILE)
def _rotate(tile: Array, cos: Array, sin: Array, out: Array) -> None:
    dim, whole = out.shape[1], out.itemsize == 4
    half = dim // 2
    for row in range(out.shape[0]):
        key, c, s, slot = tile[row * dim : (row + 1) * dim], cos[row], sin[row], out[row]
        for j in range(half):
            low, high = key[j], key[j + half]
            slot[j] = _word(low * c[j] - high * s[j], whole)
            slot[j + half] = _word(high * c[j + half] + low * s[j + half], whole)
