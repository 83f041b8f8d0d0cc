# mypy: disallow-untyped-decorators=False
"""Rows of codes straight to bfloat16 slots, in vector code written out for LLVM; used by vector_loops.py.

Rows are short: left to itself LLVM spends more time on checks and loop ends than on numbers. Here 64 elements of a row
are one unit, 32 of its first half and their 32 rotary partners of its second: they lie in the same bytes of each plane
of storage/codecs/planes.py, and go from packed bytes to rounded slots in registers. Nothing names an instruction set:
LLVM splits vectors into what a processor has. Products and sums are apart and in the order of the plain twins, so that
the numbers are the same to the last bit.

Addresses, strides and offsets are in bytes. `head_dim` is a multiple of 64. No bounds are checked here.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from models.placing import recipes as forms

UNIT_HALF = 32
"""Elements of a unit in either half of a row."""
KINDS = (forms.BFLOAT16, forms.SIGNED8, forms.PACKED6, forms.PACKED5, forms.PACKED4, forms.PACKED3)
"""The kinds of codes that are known here; packed ones have a scale and zero in bfloat16, signed a scale in float32."""

_I8, _I16, _I32, _I64, _F32 = ir.IntType(8), ir.IntType(16), ir.IntType(32), ir.IntType(64), ir.FloatType()
_FLOATS, _BITS = ir.VectorType(_F32, UNIT_HALF), ir.VectorType(_I32, UNIT_HALF)
_BYTES, _HALVES = ir.VectorType(_I8, UNIT_HALF), ir.VectorType(_I16, UNIT_HALF)
_WORDS = ir.VectorType(_I64, 4)  # the same 32 bytes
_QUARTER = ir.VectorType(_I32, UNIT_HALF // 2)
_QUARTERS = (list(range(UNIT_HALF // 2)), list(range(UNIT_HALF // 2, UNIT_HALF)))
Value: TypeAlias = Any  # llvmlite has no types: ir.Value, ir.IRBuilder, ir.Type
Builder: TypeAlias = Any
Kind: TypeAlias = Any
_intrinsic: Any = intrinsic


class Unit(NamedTuple):
    """Where the codes of a unit lie in a row. Planes of 1 bit in four pieces of 8 bytes, planes of 2 in two of 16."""

    half: Value
    """Bytes from the row's beginning to the first element, a byte each; to the first pair in a plane of 4 bits."""
    partner: Value
    """The same of the second half, a byte each."""
    ones_at: list[Value]
    ones_shift: Value
    twos_at: list[Value]
    twos_shift: Value


@_intrinsic
def keys_unit(
    typing: Any, kind: Any, codes: Any, row_bytes: Any, head_dim: Any, unit: Any, rows: Any, scale: Any, zero: Any,
    cos: Any, sin: Any, table_stride: Any, slots: Any, slot_stride: Any,
) -> Any:  # fmt: skip
    """One unit of `rows` keys that share their scales: scale and zero of the first channel, tables of the first row."""
    return types.void(*[types.int64] * 13), _keys


@_intrinsic
def values_unit(
    typing: Any, kind: Any, codes: Any, row_bytes: Any, head_dim: Any, unit: Any, rows: Any, scale: Any, zero: Any,
    scale_stride: Any, group: Any, slots: Any, slot_stride: Any,
) -> Any:  # fmt: skip
    """One unit of `rows` values; scale and zero of the first row's first group of `group` elements (of 32 or more)."""
    return types.void(*[types.int64] * 12), _values


def _keys(context: Any, builder: Builder, signature: Any, arguments: list[Value]) -> Value:
    kind, *others = arguments
    _switch(builder, kind, lambda known: _key_rows(builder, known, *others))
    return context.get_dummy_value()


def _values(context: Any, builder: Builder, signature: Any, arguments: list[Value]) -> Value:
    kind, *others = arguments
    _switch(builder, kind, lambda known: _value_rows(builder, known, *others))
    return context.get_dummy_value()


def _switch(builder: Builder, kind: Value, emit: Callable[[int], None]) -> None:
    """What `emit` writes for the kind that is met at run time; nothing for another."""
    end = builder.append_basic_block("kinds.end")
    switch = builder.switch(kind, end)
    for known in KINDS:
        block = builder.append_basic_block(f"kind.{known}")
        switch.add_case(kind.type(known), block)
        builder.position_at_end(block)
        emit(known)
        builder.branch(end)
    builder.position_at_end(end)


def _key_rows(
    builder: Builder, kind: int, codes: Value, row_bytes: Value, head_dim: Value, unit: Value, rows: Value,
    scale: Value, zero: Value, cos: Value, sin: Value, table_stride: Value, slots: Value, slot_stride: Value,
) -> None:  # fmt: skip
    first, second, where = _begin(builder, head_dim, unit)
    channels = (first, second)
    scales = [_scales(builder, kind, scale, channel) for channel in channels] if kind != forms.BFLOAT16 else []
    zeros = [_scales(builder, kind, zero, channel) for channel in channels] if kind in forms.PACKED_BITS else []
    with cgutils.for_range(builder, rows) as loop:
        halves = _numbers(builder, kind, _at(builder, codes, loop.index, row_bytes), where)
        halves = [builder.fmul(half, by) for half, by in zip(halves, scales, strict=True)] if scales else halves
        halves = [builder.fadd(half, by) for half, by in zip(halves, zeros, strict=True)] if zeros else halves
        c, s = (
            [_load(builder, builder.add(row, _times(builder, channel, 4)), _FLOATS) for channel in channels]
            for row in (_at(builder, table, loop.index, table_stride) for table in (cos, sin))
        )
        low, high = halves
        slot = _at(builder, slots, loop.index, slot_stride)
        turned = builder.fsub(builder.fmul(low, c[0]), builder.fmul(high, s[0]))
        _store(builder, turned, builder.add(slot, _times(builder, first, 2)))
        turned = builder.fadd(builder.fmul(high, c[1]), builder.fmul(low, s[1]))
        _store(builder, turned, builder.add(slot, _times(builder, second, 2)))


def _value_rows(
    builder: Builder, kind: int, codes: Value, row_bytes: Value, head_dim: Value, unit: Value, rows: Value,
    scale: Value, zero: Value, scale_stride: Value, group: Value, slots: Value, slot_stride: Value,
) -> None:  # fmt: skip
    first, second, where = _begin(builder, head_dim, unit)
    groups = [builder.udiv(element, group) for element in (first, second)]
    with cgutils.for_range(builder, rows) as loop:
        halves = _numbers(builder, kind, _at(builder, codes, loop.index, row_bytes), where)
        slot = _at(builder, slots, loop.index, slot_stride)
        moved = builder.mul(loop.index, scale_stride)
        for half, element, which in zip(halves, (first, second), groups, strict=True):
            number = half
            if kind != forms.BFLOAT16:
                number = builder.fmul(number, _scale(builder, kind, builder.add(scale, moved), which))
            if kind in forms.PACKED_BITS:
                number = builder.fadd(number, _scale(builder, kind, builder.add(zero, moved), which))
            _store(builder, number, builder.add(slot, _times(builder, element, 2)))


def _begin(builder: Builder, head_dim: Value, unit: Value) -> tuple[Value, Value, Unit]:
    """The first elements of the unit in both halves of the row, and where its codes are."""
    first = _times(builder, unit, UNIT_HALF)
    second = builder.add(first, builder.lshr(head_dim, _I64(1)))
    places: list[tuple[list[Value], Value]] = []
    for bits, pieces in ((1, 4), (2, 2)):
        width, at = builder.lshr(head_dim, _I64(4 - bits)), []  # of the plane; 8, 4 to a byte
        shift = ir.Constant(_WORDS, None)
        for piece in range(pieces):
            element = builder.add(first, _I64(piece * UNIT_HALF // pieces))
            at.append(builder.urem(element, width))
            amount = _times(builder, builder.udiv(element, width), bits)
            for lane in range(4 // pieces * piece, 4 // pieces * (piece + 1)):
                shift = builder.insert_element(shift, amount, _I32(lane))
        places.append((at, shift))
    (ones_at, ones_shift), (twos_at, twos_shift) = places
    return first, second, Unit(first, second, ones_at, ones_shift, twos_at, twos_shift)


def _numbers(builder: Builder, kind: int, row: Value, unit: Unit) -> list[Value]:
    """The unit's codes as float32, first half and second."""
    halves = (builder.add(row, unit.half), builder.add(row, unit.partner))
    if kind == forms.BFLOAT16:
        halves = (builder.add(halves[0], unit.half), builder.add(halves[1], unit.partner))
        return [_widened(builder, _load(builder, half, _HALVES)) for half in halves]
    if kind == forms.SIGNED8:
        return [builder.sitofp(builder.sext(_load(builder, half, _BYTES), _BITS), _FLOATS) for half in halves]
    codes = _planes(builder, kind, row, halves[0], unit)
    return [builder.uitofp(builder.zext(builder.bitcast(half, _BYTES), _BITS), _FLOATS) for half in codes]


def _planes(builder: Builder, kind: int, row: Value, fours_at: Value, unit: Unit) -> tuple[Value, Value]:
    """Codes of two planes (or one) put together, a byte each. Bits of another byte are shifted in and masked out."""
    if kind == forms.PACKED3:
        plane = builder.lshr(_pieces(builder, row, unit.twos_at), unit.twos_shift)
        low, high, top_bits = _masked(builder, plane, 0x03), _masked(builder, _right(builder, plane, 4), 0x03), 1
        row = _after(builder, row, unit, 2)
    else:
        plane = _load(builder, fours_at, _WORDS)
        low, high = _masked(builder, plane, 0x0F), _masked(builder, _right(builder, plane, 4), 0x0F)
        top_bits = forms.PACKED_BITS[kind] - 4
        row = _after(builder, row, unit, 4)
    if not top_bits:
        return low, high
    at, shift = (unit.ones_at, unit.ones_shift) if top_bits == 1 else (unit.twos_at, unit.twos_shift)
    top = builder.lshr(_pieces(builder, row, at), shift)
    place, mask = (2 if kind == forms.PACKED3 else 4), (1 << top_bits) - 1
    low = builder.or_(low, _left(builder, _masked(builder, top, mask), place))
    return low, builder.or_(high, _masked(builder, _right(builder, top, 4 - place), mask << place))


def _after(builder: Builder, row: Value, unit: Unit, bits: int) -> Value:
    """Where the plane behind a first plane of 2 or 4 bits begins: head_dim is twice the way to the partners."""
    half_dim = builder.sub(unit.partner, unit.half)
    return builder.add(row, half_dim if bits == 4 else builder.lshr(half_dim, _I64(1)))


def _pieces(builder: Builder, plane: Value, at: list[Value]) -> Value:
    """32 bytes from pieces of a plane."""
    lanes = 4 // len(at)
    found = ir.Constant(_WORDS, ir.Undefined)
    for index, offset in enumerate(at):
        for lane in range(lanes):
            word = _load(builder, builder.add(plane, builder.add(offset, _I64(8 * lane))), _I64)
            found = builder.insert_element(found, word, _I32(lanes * index + lane))
    return found


def _scales(builder: Builder, kind: int, address: Value, channel: Value) -> Value:
    """Of 32 channels as float32."""
    if kind == forms.SIGNED8:
        return _load(builder, builder.add(address, _times(builder, channel, 4)), _FLOATS)
    return _widened(builder, _load(builder, builder.add(address, _times(builder, channel, 2)), _HALVES))


def _scale(builder: Builder, kind: int, address: Value, group: Value) -> Value:
    """Of one group, 32 times."""
    if kind == forms.SIGNED8:
        number = _load(builder, builder.add(address, _times(builder, group, 4)), _F32)
    else:
        half = _load(builder, builder.add(address, _times(builder, group, 2)), _I16)
        number = builder.bitcast(builder.shl(builder.zext(half, _I32), _I32(16)), _F32)
    lone = builder.insert_element(ir.Constant(_FLOATS, ir.Undefined), number, _I32(0))
    return builder.shuffle_vector(lone, lone, ir.Constant(_BITS, [0] * UNIT_HALF))


def _widened(builder: Builder, halves: Value) -> Value:
    """Bfloat16 to float32."""
    return builder.bitcast(builder.shl(builder.zext(halves, _BITS), _every(_BITS, 16)), _FLOATS)


def _store(builder: Builder, number: Value, address: Value) -> None:
    """Rounded to bfloat16, to the nearest, ties to even."""
    bits = builder.bitcast(number, _BITS)
    odd = builder.and_(builder.lshr(bits, _every(_BITS, 16)), _every(_BITS, 1))
    rounded = builder.add(builder.add(bits, _every(_BITS, 0x7FFF)), odd)
    # The upper words picked by one shuffle of two vectors: as a shift and a truncation LLVM takes an eighth longer.
    quarters = (builder.shuffle_vector(rounded, rounded, ir.Constant(_QUARTER, lanes)) for lanes in _QUARTERS)
    words = [builder.bitcast(quarter, _HALVES) for quarter in quarters]
    halves = builder.shuffle_vector(*words, ir.Constant(_BITS, list(range(1, 2 * UNIT_HALF, 2))))
    builder.store(halves, builder.inttoptr(address, _HALVES.as_pointer()), align=1)


def _load(builder: Builder, address: Value, kind: Kind) -> Value:
    return builder.load(builder.inttoptr(address, kind.as_pointer()), align=1)


def _at(builder: Builder, base: Value, index: Value, stride: Value) -> Value:
    return builder.add(base, builder.mul(index, stride))


def _times(builder: Builder, number: Value, factor: int) -> Value:
    return builder.mul(number, _I64(factor))


def _every(vector: Kind, number: int) -> Value:
    return ir.Constant(vector, [number] * vector.count)


def _masked(builder: Builder, words: Value, byte: int) -> Value:
    return builder.and_(words, _every(_WORDS, byte * 0x0101010101010101))


def _left(builder: Builder, words: Value, bits: int) -> Value:
    return builder.shl(words, _every(_WORDS, bits))


def _right(builder: Builder, words: Value, bits: int) -> Value:
    return builder.lshr(words, _every(_WORDS, bits)) if bits else words
