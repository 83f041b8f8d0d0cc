"""Compiled loops over rows: RMS norm, rotation into the arena, SiLU times the gate's partner. Each walks its rows once.

Torch takes eight calls and as many fresh tensors for one norm; for the few rows of a question or a decoding step that
costs more than the arithmetic. Numbers are float32 or bfloat16 (`half`), seen as int32 or int16, for numpy has no
bfloat16. Every product is rounded where the plain twin rounds it; only sums run in another order and `exp` is a
polynomial (Cody and Waite's reduction, within 2 units of float32), so results agree to one unit in the last place.
One thread, without the interpreter's lock. No closures: numba's cache watches this file alone. Nothing is checked
here: see layers.py.
"""

from typing import Any

import numba
import numpy as np

COMPILE: dict[str, Any] = {"nogil": True, "cache": True, "error_model": "numpy", "boundscheck": False}
_F32, _I32 = np.float32, np.int32
_LOG2_E, _LN2_HIGH, _LN2_LOW = _F32(1.44269504088896341), _F32(0.693359375), _F32(-2.12194440e-4)
_LEAST, _MOST = _F32(-87.0), _F32(88.0)  # beyond them e^x leaves float32
_ROUNDING = _F32(12582912.0)  # 1.5 * 2^23: added and taken away, it leaves the nearest whole number
Array = np.ndarray


@numba.njit(**COMPILE)
def _widen(source: Array, half: bool, into: Array) -> None:
    """The bits of float32 numbers."""
    if half:
        for i in range(into.shape[0]):
            into[i] = _I32(source[i]) << _I32(16)
    else:
        for i in range(into.shape[0]):
            into[i] = _I32(source[i])


@numba.njit(**COMPILE)
def _round(bits: Array) -> None:
    """To the nearest bfloat16, ties to even, still as float32."""
    for i in range(bits.shape[0]):
        b = bits[i]
        bits[i] = (b + _I32(0x7FFF) + ((b >> _I32(16)) & _I32(1))) & _I32(-65536)


@numba.njit(**COMPILE)
def _store(bits: Array, half: bool, into: Array) -> None:
    """Write numbers that are rounded already."""
    if half:
        for i in range(bits.shape[0]):
            into[i] = bits[i] >> _I32(16)
    else:
        for i in range(bits.shape[0]):
            into[i] = bits[i]


@numba.njit(fastmath={"reassoc"}, **COMPILE)
def _square_sum(numbers: Array) -> Any:
    """In whatever order is quickest."""
    total = _F32(0)
    for i in range(numbers.shape[0]):
        total += numbers[i] * numbers[i]
    return total


@numba.njit(**COMPILE)
def _times(numbers: Array, others: Array) -> None:
    for i in range(numbers.shape[0]):
        numbers[i] *= others[i]


@numba.njit(**COMPILE)
def _norm(bits: Array, weight: Array, eps: float, half: bool) -> None:
    """One row in place."""
    numbers = bits.view(_F32)
    factor = _F32(1) / np.sqrt(_square_sum(numbers) / _F32(numbers.shape[0]) + _F32(eps))
    for i in range(numbers.shape[0]):
        numbers[i] *= factor
    if half:
        _round(bits)
    _times(numbers, weight)
    if half:
        _round(bits)


@numba.njit(**COMPILE)
def add_and_norm(states: Array, added: Array, weight: Array, eps: float, half: bool, into: Array) -> None:
    """`states += added` (nothing where `added` has no rows), then its RMS norm (Zhang and Sennrich 2019) to `into`.

    All `[rows, dim]`; `weight` float32 `[dim]`, empty where no norm is wanted.
    """
    dim = states.shape[1]
    bits, more = np.empty(dim, _I32), np.empty(dim, _I32)
    x, y = bits.view(_F32), more.view(_F32)
    for row in range(states.shape[0]):
        _widen(states[row], half, bits)
        if added.shape[0]:
            _widen(added[row], half, more)
            for i in range(dim):
                x[i] += y[i]
            if half:
                _round(bits)
            _store(bits, half, states[row])
        if weight.shape[0]:
            _norm(bits, weight, eps, half)
            _store(bits, half, into[row])


@numba.njit(**COMPILE)
def _turn(bits: Array, c: Array, s: Array, spare: Array, half: bool) -> None:
    """Rotate one head in place."""
    x, t = bits.view(_F32), spare.view(_F32)
    middle = x.shape[0] // 2
    low, high, t_low, t_high, s_low, s_high = x[:middle], x[middle:], t[:middle], t[middle:], s[:middle], s[middle:]
    for i in range(middle):
        t_low[i] = -high[i] * s_low[i]
    for i in range(middle):
        t_high[i] = low[i] * s_high[i]
    _times(x, c)
    if half:
        _round(spare)
        _round(bits)
    for i in range(x.shape[0]):
        x[i] += t[i]
    if half:
        _round(bits)


@numba.njit(**COMPILE)
def turn_rows(
    projected: Array, cos: Array, sin: Array, query_norm: Array, key_norm: Array, eps: float, positions: Array,
    half: bool, query: Array, keys: Array, values: Array
) -> None:  # fmt: skip
    """Queries, keys and values beside each other `[rows, (heads + 2 kv_heads) * head_dim]` to where they are used.

    Normed (where the head norms are not empty) and rotated by `cos`, `sin` `[rows, head_dim]` (float32, rounded):
    queries to `query` `[heads, rows, head_dim]`, keys and values to `keys`, `values` `[kv_heads, slots, head_dim]` at
    `positions`.
    """
    heads, kv_heads, dim = query.shape[0], keys.shape[0], query.shape[2]
    bits, spare = np.empty(dim, _I32), np.empty(dim, _I32)
    for row in range(projected.shape[0]):
        line, c, s, slot = projected[row], cos[row], sin[row], positions[row]
        for head in range(heads):
            _widen(line[head * dim : (head + 1) * dim], half, bits)
            if query_norm.shape[0]:
                _norm(bits, query_norm, eps, half)
            _turn(bits, c, s, spare, half)
            _store(bits, half, query[head, row])
        for head in range(kv_heads):
            _widen(line[(heads + head) * dim : (heads + head + 1) * dim], half, bits)
            if key_norm.shape[0]:
                _norm(bits, key_norm, eps, half)
            _turn(bits, c, s, spare, half)
            _store(bits, half, keys[head, slot])
            first = (heads + kv_heads + head) * dim
            values[head, slot, :] = line[first : first + dim]


@numba.njit(**COMPILE)
def _exponential(x: Array, power: Array, e: Array) -> None:
    """`e` takes e^-x; `power` is spare."""
    two_to = power.view(_F32)
    for i in range(x.shape[0]):
        y = min(max(-x[i], _LEAST), _MOST)
        n = (y * _LOG2_E + _ROUNDING) - _ROUNDING
        r = y - n * _LN2_HIGH - n * _LN2_LOW
        p = _F32(1.9875691500e-4)
        p = p * r + _F32(1.3981999507e-3)
        p = p * r + _F32(8.3334519073e-3)
        p = p * r + _F32(4.1665795894e-2)
        p = p * r + _F32(1.6666665459e-1)
        p = p * r + _F32(5.0000001201e-1)
        e[i] = p * r * r + r + _F32(1)
        power[i] = (_I32(n) + _I32(127)) << _I32(23)
    _times(e, two_to)


@numba.njit(**COMPILE)
def gate_rows(projected: Array, half: bool, into: Array) -> None:
    """Gates and their partners beside each other `[rows, 2 dim]`: SiLU of the first times the second, `[rows, dim]`."""
    dim = into.shape[1]
    bits, more, power, e = np.empty(dim, _I32), np.empty(dim, _I32), np.empty(dim, _I32), np.empty(dim, _F32)
    g = bits.view(_F32)
    for row in range(into.shape[0]):
        _widen(projected[row, :dim], half, bits)
        _widen(projected[row, dim:], half, more)
        _exponential(g, power, e)
        for i in range(dim):
            g[i] = g[i] / (_F32(1) + e[i])
        if half:
            _round(bits)
        _times(g, more.view(_F32))
        if half:
            _round(bits)
        _store(bits, half, into[row])
