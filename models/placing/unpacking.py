# mypy: disallow-untyped-decorators=False
"""The compiled loops that turn the codes of a tile's rows into float32, or bytes of one code each; see loops.py.

`packed*` read storage/codecs/planes.py's planes. Bytes vectorise where a plane's pieces are as long as a vector, which
one-bit pieces are not: those are taken as words, whose bytes are as many codes at once. numba's cache of loops.py does
not watch this file: after a change here touch that one too.
"""

from typing import Any

import numba
import numpy as np

from models.placing import recipes as forms

COMPILE: dict[str, Any] = {"nogil": True, "cache": True, "error_model": "numpy", "boundscheck": False}
_U8, _U32, _U64, _F32 = np.uint8, np.uint32, np.uint64, np.float32
Array = np.ndarray


@numba.njit(**COMPILE)
def float8(codes: Array, fraction_bits: int, tile: Array) -> None:
    """Exponent and fraction move to float32's places. Never through its denormals: they are slow on many processors."""
    shift, bias = _U32(23 - fraction_bits), _U32((1 << (6 - fraction_bits)) - 1)
    normal, denormal = (_U32(127) - bias) << _U32(23), (_U32(128) - bias) << _U32(23)
    least_normal, smallest = _U32(1) << _U32(fraction_bits), _U32(denormal).view(_F32)
    for j in range(tile.shape[0]):
        byte = _U32(codes[j])
        magnitude = byte & _U32(127)
        moved = magnitude << shift
        above = _U32(moved + normal).view(_F32)
        below = _F32(_U32(moved + denormal).view(_F32) - smallest)
        number = above if magnitude >= least_normal else below
        tile[j] = _U32(_F32(number).view(_U32) | ((byte & _U32(128)) << _U32(24))).view(_F32)


@numba.njit(**COMPILE)
def gse8(codes: Array, fraction_bits: int, step: int, scale: np.float32, tile: Array) -> None:
    """Fraction times a power of two put together from sign and index."""
    shift, distance = _U32(fraction_bits), _U32(step)
    fractions, top = (_U32(1) << shift) - _U32(1), _U32(127) - shift
    for j in range(tile.shape[0]):
        byte = _U32(codes[j])
        exponent = top - ((byte & _U32(127)) >> shift) * distance
        power = _U32((exponent << _U32(23)) | ((byte & _U32(128)) << _U32(24))).view(_F32)
        tile[j] = _F32(np.int32(byte & fractions)) * power * scale


@numba.njit(**COMPILE)
def packed4(codes: Array, rows: int, dim: int, tile: Array) -> None:
    """One plane of 4 bits: byte j holds elements j and j + dim / 2."""
    half = dim // 2
    for row in range(rows):
        code = codes[row * half : (row + 1) * half]
        low, high = tile[row * dim : row * dim + half], tile[row * dim + half : (row + 1) * dim]
        for j in range(half):
            low[j] = _F32(code[j] & _U8(15))
        for j in range(half):
            high[j] = _F32(code[j] >> _U8(4))


@numba.njit(**COMPILE)
def packed(codes: Array, kind: int, rows: int, dim: int, row_bytes: int, out: Array) -> None:
    """Codes to a byte each, `out[rows * dim]`."""
    if kind == forms.PACKED4:
        _bytes4(codes, rows, dim, out)
    elif kind == forms.PACKED6:
        _packed6(codes, rows, dim, row_bytes, out)
    elif kind == forms.PACKED5 and dim % 64 == 0:  # eight codes at once
        _packed5(codes.view(_U64), rows, _U64(0x0F0F0F0F0F0F0F0F), _U64(0x0101010101010101), out.view(_U64))
    elif kind == forms.PACKED3 and dim % 32 == 0:  # four
        _packed3(codes.view(_U32), rows, _U32(0x03030303), _U32(0x01010101), out.view(_U32))
    elif kind == forms.PACKED5:
        for row in range(rows):
            code = codes[row * row_bytes : row * row_bytes + dim // 8 * 5]
            _packed5(code, 1, _U8(15), _U8(1), out[row * dim : (row + 1) * dim])
    else:
        for row in range(rows):
            code = codes[row * row_bytes : row * row_bytes + dim // 8 * 3]
            _packed3(code, 1, _U8(3), _U8(1), out[row * dim : (row + 1) * dim])


@numba.njit(**COMPILE)
def _bytes4(codes: Array, rows: int, dim: int, out: Array) -> None:
    """One plane of 4 bits: byte j holds elements j and j + dim / 2."""
    half = dim // 2
    for row in range(rows):
        code = codes[row * half : (row + 1) * half]
        low, high = out[row * dim : row * dim + half], out[row * dim + half : (row + 1) * dim]
        for j in range(half):
            low[j] = code[j] & _U8(15)
        for j in range(half):
            high[j] = code[j] >> _U8(4)


@numba.njit(**COMPILE)
def _packed6(codes: Array, rows: int, dim: int, row_bytes: int, out: Array) -> None:
    """A plane of 4 bits, then one of 2."""
    width = dim // 4
    for row in range(rows):
        code, number = codes[row * row_bytes : (row + 1) * row_bytes], out[row * dim : (row + 1) * dim]
        top = code[2 * width : 3 * width]
        for part in range(2):
            both, shift = code[part * width : (part + 1) * width], _U8(2 * part)
            low, high = number[part * width : (part + 1) * width], number[(part + 2) * width : (part + 3) * width]
            for j in range(width):
                low[j] = (both[j] & _U8(15)) | (((top[j] >> shift) & _U8(3)) << _U8(4))
            for j in range(width):
                high[j] = (both[j] >> _U8(4)) | ((top[j] >> shift) & _U8(48))


@numba.njit(**COMPILE)
def _packed5(codes: Array, rows: int, fours: Any, ones: Any, out: Array) -> None:
    """A plane of 4 bits, then one of 1 bit. Codes and `out` in bytes, or in words with wide masks."""
    width = codes.shape[0] // rows // 5  # of the second plane; the first is four times as wide
    for row in range(rows):
        code, number = codes[row * 5 * width : (row + 1) * 5 * width], out[row * 8 * width : (row + 1) * 8 * width]
        if width == 1:  # head_dim 64: the parts are neighbours, and all four go in one vector
            _parts5(code, number, 0, 1, fours, ones)
        else:
            for j in range(width):
                _parts5(code, number, j, width, fours, ones)


@numba.njit(inline="always", **COMPILE)
def _parts5(code: Array, number: Array, j: int, width: int, fours: Any, ones: Any) -> None:
    top = code[4 * width + j]
    for part in range(4):
        both, bits = code[part * width + j], top >> part
        number[part * width + j] = (both & fours) | ((bits & ones) << 4)
        number[(part + 4) * width + j] = ((both >> 4) & fours) | (((bits >> 4) & ones) << 4)


@numba.njit(**COMPILE)
def _packed3(codes: Array, rows: int, twos: Any, ones: Any, out: Array) -> None:
    """A plane of 2 bits, then one of 1 bit. Codes and `out` in bytes, or in words with wide masks."""
    width = codes.shape[0] // rows // 3  # of the second plane; the first is twice as wide
    for row in range(rows):
        code = codes[row * 3 * width : (row + 1) * 3 * width]
        number = out[row * 8 * width : (row + 1) * 8 * width]
        for j in range(width):
            even, odd, top = code[j], code[j + width], code[j + 2 * width]
            for part in range(4):
                high = ((top >> (2 * part)) & ones) << 2
                number[j + 2 * part * width] = ((even >> (2 * part)) & twos) | high
                high = ((top >> (2 * part + 1)) & ones) << 2
                number[j + (2 * part + 1) * width] = ((odd >> (2 * part)) & twos) | high
