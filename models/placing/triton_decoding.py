# mypy: disallow-untyped-decorators=False
# ruff: noqa: N803, N806 - constants of a compilation are written in capitals, as Triton does
"""Decoding in the Triton kernel of placing: codes of any codec to the two halves of a tile of rows, float32.

A row is held as two halves, elements `0 … head_dim/2` and the rest, because element j and its rotary partner
j + head_dim/2 are turned together, and lie in the same byte of a packed plane. Everything is exact but the products
and sums that plain torch rounds too, in the same order. Formats: docs/file-format.md and storage/codecs.
"""

import triton
import triton.language as tl

KIND_F32, KIND_BF16, KIND_INT8, KIND_INT8T = 0, 1, 2, 3
KIND_FLOAT8, KIND_GSE, KIND_GROUPED, KIND_ROTATED = 4, 5, 6, 7

_F32, _BF16, _INT8T = tl.constexpr(KIND_F32), tl.constexpr(KIND_BF16), tl.constexpr(KIND_INT8T)
_FLOAT8, _GSE = tl.constexpr(KIND_FLOAT8), tl.constexpr(KIND_GSE)
_GROUPED, _ROTATED = tl.constexpr(KIND_GROUPED), tl.constexpr(KIND_ROTATED)


@triton.jit
def _widen(halves: tl.tensor) -> tl.tensor:
    """The upper halves of float32 words, int16, to float32: what a bfloat16 is."""
    return (halves.to(tl.int32) << 16).to(tl.float32, bitcast=True)


@triton.jit
def _float8(codes: tl.tensor, FRACTION: tl.constexpr) -> tl.tensor:
    """e4m3 (3 bits of fraction) or e5m2 (2), int32: moved into a float16, which has room for both, then exact."""
    word = ((codes & 128) << 8) | ((codes & 127) << (10 - FRACTION))
    number = word.to(tl.int16).to(tl.float16, bitcast=True).to(tl.float32)
    if FRACTION == 3:
        number = number * 256.0  # e4m3's exponent counts from 7, float16's from 15
    return number


@triton.jit
def _gse(codes: tl.tensor, FRACTION: tl.constexpr, STEP: tl.constexpr) -> tl.tensor:
    """Sign, index and fraction, int32, to numbers that the layer's scale multiplies."""
    exponent = 127 - FRACTION - STEP * ((codes & 127) >> FRACTION)
    number = (codes & ((1 << FRACTION) - 1)).to(tl.float32) * (exponent << 23).to(tl.float32, bitcast=True)
    return tl.where(codes > 127, -number, number)


@triton.jit
def _plane(row: tl.tensor, element: tl.tensor, mask: tl.tensor, DIM: tl.constexpr, BITS: tl.constexpr) -> tl.tensor:
    """The bits that one plane holds of elements j (low) and j + head_dim/2 (high): four bits apart in a byte."""
    WIDTH: tl.constexpr = DIM * BITS // 8
    byte = tl.load(row + element % WIDTH, mask=mask, other=0).to(tl.int32) >> (element // WIDTH * BITS)
    return byte & ((1 << BITS) - 1), (byte >> 4) & ((1 << BITS) - 1)


@triton.jit
def _small_codes(
    row: tl.tensor, element: tl.tensor, mask: tl.tensor, DIM: tl.constexpr, BITS: tl.constexpr
) -> tl.tensor:
    """Codes of 6 to 2 bits as float32: storage/codecs/planes.py's planes, lowest bits first."""
    LOWER: tl.constexpr = 4 if BITS >= 4 else 2
    low, high = _plane(row, element, mask, DIM, LOWER)
    if BITS > LOWER:
        low_top, high_top = _plane(row + DIM * LOWER // 8, element, mask, DIM, BITS - LOWER)
        low = low | (low_top << LOWER)
        high = high | (high_top << LOWER)
    return low.to(tl.float32), high.to(tl.float32)


@triton.jit
def _signs(one: tl.tensor, other: tl.tensor, BLOCK: tl.constexpr) -> tl.tensor:
    """Entries of the block-diagonal matrix of ones and minus ones (storage/codecs/hadamard.py), float16."""
    common = one & other & (BLOCK - 1)
    common = common ^ (common >> 4)  # blocks are at most 256 long
    odd = (0x6996 >> (common & 15)) & 1
    sign = tl.where(odd == 1, -1.0, 1.0)
    return tl.where(one // BLOCK == other // BLOCK, sign, 0.0).to(tl.float16)


@triton.jit
def _butterflies(low: tl.tensor, high: tl.tensor, DIM: tl.constexpr, PAD: tl.constexpr) -> tl.tensor:
    """Rows of whole numbers times the matrix of signs; exact in float16, whose products are summed in float32."""
    HALF: tl.constexpr = DIM // 2
    BLOCK: tl.constexpr = DIM & -DIM
    one = tl.arange(0, PAD)[:, None]
    other = tl.arange(0, PAD)[None, :]
    if BLOCK == DIM:  # the first butterfly joins the halves, the others stay within them
        inner = _signs(one, other, DIM)
        first = tl.dot((low + high).to(tl.float16), inner)
        second = tl.dot((low - high).to(tl.float16), inner)
    else:
        low = low.to(tl.float16)
        high = high.to(tl.float16)
        first = tl.dot(low, _signs(one, other, BLOCK)) + tl.dot(high, _signs(one + HALF, other, BLOCK))
        second = tl.dot(low, _signs(one, other + HALF, BLOCK))
        second = second + tl.dot(high, _signs(one + HALF, other + HALF, BLOCK))
    return first, second


@triton.jit
def _rotated_row(
    low: tl.tensor, high: tl.tensor, halves: tl.tensor, scale_at: tl.tensor, zero_at: tl.tensor, at: tl.tensor,
    element: tl.tensor, rows: tl.tensor, INVERSE_ROOT: tl.constexpr, ROOT: tl.constexpr,
    DIM: tl.constexpr, PAD: tl.constexpr,
) -> tl.tensor:  # fmt: skip
    """Codes float32 of values that were rotated before they were quantised: one scale and zero a token, then back."""
    BLOCK: tl.constexpr = DIM & -DIM
    scale = _widen(tl.load(halves + scale_at + at, mask=rows, other=0)) * INVERSE_ROOT
    zero = _widen(tl.load(halves + zero_at + at, mask=rows, other=0)) * ROOT
    low, high = _butterflies(low, high, DIM, PAD)
    low = low * scale
    high = high * scale
    low = tl.where(element % BLOCK == 0, low + zero, low)
    high = tl.where((element + DIM // 2) % BLOCK == 0, high + zero, high)
    return low, high


@triton.jit
def _each_group(
    halves: tl.tensor, at: tl.tensor, rows: tl.tensor, TILE: tl.constexpr, PAD: tl.constexpr,
    GROUP: tl.constexpr,
) -> tl.tensor:  # fmt: skip
    """A number for each of the groups of half a row, read once, spread over `[TILE, PAD]`."""
    GROUPS: tl.constexpr = PAD // GROUP
    number = _widen(tl.load(halves + at + tl.arange(0, GROUPS)[None, :], mask=rows, other=0))
    return tl.reshape(tl.broadcast_to(number[:, :, None], (TILE, GROUPS, GROUP)), (TILE, PAD))


@triton.jit
def _grouped(
    low: tl.tensor, high: tl.tensor, halves: tl.tensor, scale_at: tl.tensor, zero_at: tl.tensor, head: tl.tensor,
    tokens: tl.tensor, token: tl.tensor, element: tl.tensor, rows: tl.tensor, columns: tl.tensor, mask: tl.tensor,
    IS_KEY: tl.constexpr, GROUP: tl.constexpr, DIM: tl.constexpr, PAD: tl.constexpr, TILE: tl.constexpr,
) -> tl.tensor:  # fmt: skip
    """Codes float32 to numbers: a scale and a zero for each channel of GROUP tokens, or GROUP elements of a token."""
    HALF: tl.constexpr = DIM // 2
    if IS_KEY:
        first = head * ((tokens + GROUP - 1) // GROUP)
        if GROUP % TILE == 0:  # the whole tile is in one group
            at = (first + tl.program_id(0) * TILE // GROUP) * DIM + element
            mask = columns
        else:
            at = (first + token // GROUP) * DIM + element
        partner = at + HALF
    else:
        at = (head * tokens + token) * ((DIM + GROUP - 1) // GROUP)
    if (not IS_KEY) and PAD == HALF and HALF % GROUP == 0:
        low = low * _each_group(halves, scale_at + at, rows, TILE, PAD, GROUP)
        high = high * _each_group(halves, scale_at + at + HALF // GROUP, rows, TILE, PAD, GROUP)
        low = low + _each_group(halves, zero_at + at, rows, TILE, PAD, GROUP)
        high = high + _each_group(halves, zero_at + at + HALF // GROUP, rows, TILE, PAD, GROUP)
    else:
        if not IS_KEY:
            partner = at + (element + HALF) // GROUP
            at = at + element // GROUP
        low = low * _widen(tl.load(halves + scale_at + at, mask=mask, other=0))
        high = high * _widen(tl.load(halves + scale_at + partner, mask=mask, other=0))
        low = low + _widen(tl.load(halves + zero_at + at, mask=mask, other=0))
        high = high + _widen(tl.load(halves + zero_at + partner, mask=mask, other=0))
    return low, high


@triton.jit
def decode(
    bytes_: tl.tensor, halves: tl.tensor, words: tl.tensor, codes_at: tl.tensor, scale_at: tl.tensor,
    zero_at: tl.tensor, head: tl.tensor, tokens: tl.tensor, token: tl.tensor, element: tl.tensor, rows: tl.tensor,
    columns: tl.tensor, mask: tl.tensor, IS_KEY: tl.constexpr, KIND: tl.constexpr, FIRST: tl.constexpr,
    SECOND: tl.constexpr, INVERSE_ROOT: tl.constexpr, ROOT: tl.constexpr, ROW: tl.constexpr,
    DIM: tl.constexpr, PAD: tl.constexpr, TILE: tl.constexpr,
) -> tl.tensor:  # fmt: skip
    """Both halves `[TILE, PAD]` float32 of one head's tokens. The three pointers are the layer, seen in three widths.

    Places count elements of their part's width; `ROW` is the bytes of a row of codes. `rows`, `columns` and `mask`
    say which tokens, which elements and which of both exist.
    """
    HALF: tl.constexpr = DIM // 2
    row = bytes_ + codes_at + (head * tokens + token) * ROW
    if KIND == _F32:
        at = words + codes_at + (head * tokens + token) * DIM + element
        low = tl.load(at, mask=mask, other=0.0)
        high = tl.load(at + HALF, mask=mask, other=0.0)
    elif KIND == _BF16:
        at = halves + codes_at + (head * tokens + token) * DIM + element
        low = _widen(tl.load(at, mask=mask, other=0))
        high = _widen(tl.load(at + HALF, mask=mask, other=0))
    elif KIND == _GROUPED:
        low, high = _small_codes(row, element, mask, DIM, FIRST)
        low, high = _grouped(
            low, high, halves, scale_at, zero_at, head, tokens, token, element, rows, columns, mask,
            IS_KEY, SECOND, DIM, PAD, TILE,
        )  # fmt: skip
    elif KIND == _ROTATED:
        low, high = _small_codes(row, element, mask, DIM, FIRST)
        low, high = _rotated_row(
            low, high, halves, scale_at, zero_at, head * tokens + token, element, rows, INVERSE_ROOT, ROOT, DIM, PAD
        )
    else:
        low_code = tl.load(row + element, mask=mask, other=0).to(tl.int32)
        high_code = tl.load(row + HALF + element, mask=mask, other=0).to(tl.int32)
        low, high = _whole_bytes(
            low_code, high_code, words, scale_at, zero_at, head * tokens + token, head * DIM + element, rows, columns,
            IS_KEY, KIND, FIRST, SECOND, HALF,
        )  # fmt: skip
    return low, high


@triton.jit
def _whole_bytes(
    low: tl.tensor, high: tl.tensor, words: tl.tensor, scale_at: tl.tensor, zero_at: tl.tensor, of_token: tl.tensor,
    of_channel: tl.tensor, rows: tl.tensor, columns: tl.tensor, IS_KEY: tl.constexpr, KIND: tl.constexpr,
    FIRST: tl.constexpr, SECOND: tl.constexpr, HALF: tl.constexpr,
) -> tl.tensor:  # fmt: skip
    """Codes of a byte each, int32, to numbers."""
    if KIND == _FLOAT8:
        return _float8(low, FIRST), _float8(high, FIRST)
    if KIND == _GSE:
        scale = tl.load(words + scale_at)
        return _gse(low, FIRST, SECOND) * scale, _gse(high, FIRST, SECOND) * scale
    if KIND == _INT8T:
        scale = tl.load(words + scale_at)
        zero = tl.load(words + zero_at)
        return low.to(tl.float32) * scale + zero, high.to(tl.float32) * scale + zero
    low = ((low ^ 128) - 128).to(tl.float32)  # int8: the sign's bit counts minus 128
    high = ((high ^ 128) - 128).to(tl.float32)
    if IS_KEY:
        low = low * tl.load(words + scale_at + of_channel, mask=columns, other=0.0)
        high = high * tl.load(words + scale_at + of_channel + HALF, mask=columns, other=0.0)
    else:
        scale = tl.load(words + scale_at + of_token, mask=rows, other=0.0)
        low = low * scale
        high = high * scale
    return low, high
