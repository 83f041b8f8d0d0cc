"""Vector code for the compiled loops (loops.py): what numba cannot say, in LLVM's own words, 16 lanes at a time.

A lane is a query row of one head. `vectors` vectors of 16 lanes stand side by side; a line is one key, one dimension or
one pair of them over all lanes. Arguments are int64: addresses, and distances in bytes. Products are AVX-512's
`vdpbf16ps`: two bfloat16 products a lane, summed in float32.
"""

import inspect
from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils as _cgutils
from numba.extending import intrinsic

LANES = 16
VECTOR_BYTES = 64
TILE_KEYS = 32
# Keys (of scores) or dimensions (of values) whose sums stay in registers, by vectors: at most 24 of the 32 registers.
REGISTER_ROWS = {1: 16, 2: 8, 3: 8, 4: 4, 5: 4, 6: 4}
# A lane's reference is raised only when its largest score is 2^8 above: weights stay finite, sums are seldom scaled.
_SLACK = 8.0
_HIDDEN, UNSEEN = -1e30, -1e20  # a later key's score, far below the reference of a lane that has seen no key yet
# Taylor's terms of 2^x: on [-1/2, 1/2] off by at most 4e-5, a fiftieth of what rounding to bfloat16 is off.
_TERMS = (0.009618129107628477, 0.05550410866482158, 0.24022650695910072, 0.6931471805599453, 1.0)

_I16, _I32, _I64 = ir.IntType(16), ir.IntType(32), ir.IntType(64)
_HALVES, _WORDS, _FLOATS = (ir.VectorType(kind, LANES) for kind in (_I16, _I32, ir.FloatType()))
cgutils: Any = _cgutils
Builder = Any
Value = Any


class _BFloat16(ir.Type):  # type: ignore[misc]
    """llvmlite names no bfloat16."""

    def _to_string(self) -> str:
        return "bfloat"


_PAIRS = ir.VectorType(_BFloat16(), 2 * LANES)


def scores_code(vectors: int) -> Callable[..., None]:
    """A tile's products `out[key][lane]` of its keys and the packed queries `[pairs of dimensions][lane]`."""
    count = REGISTER_ROWS[vectors]

    def code(builder: Builder, key: Value, key_bytes: Value, query: Value, out: Value, pairs: Value) -> None:
        with cgutils.for_range(builder, _I64(TILE_KEYS // count)) as block:
            first = builder.mul(block.index, _I64(count))
            places = [builder.add(key, builder.mul(first, key_bytes))]
            for _ in range(count - 1):
                places.append(builder.add(places[-1], key_bytes))
            to = builder.add(out, builder.mul(first, _I64(VECTOR_BYTES * vectors)))
            sums = _sums(builder, count, vectors, None)
            with cgutils.for_range(builder, pairs) as loop:
                at = builder.mul(loop.index, _I64(4))
                _multiply(builder, sums, [builder.add(place, at) for place in places], query, loop.index)
            _put(builder, sums, to)

    return code


def values_code(vectors: int) -> Callable[..., None]:
    """Add to the sums `out[dimension][lane]` a tile's weights `[pairs of keys][lane]` times its paired values."""
    count = REGISTER_ROWS[vectors]

    def code(builder: Builder, value: Value, line_bytes: Value, weight: Value, out: Value, dims: Value) -> None:
        with cgutils.for_range(builder, builder.udiv(dims, _I64(count))) as block:
            first = builder.mul(block.index, _I64(count))
            place = builder.add(value, builder.mul(first, _I64(4)))
            to = builder.add(out, builder.mul(first, _I64(VECTOR_BYTES * vectors)))
            sums = _sums(builder, count, vectors, to)
            with cgutils.for_range(builder, _I64(TILE_KEYS // 2)) as loop:
                at = builder.add(place, builder.mul(loop.index, line_bytes))
                _multiply(builder, sums, [builder.add(at, _I64(4 * d)) for d in range(count)], weight, loop.index)
            _put(builder, sums, to)

    return code


def largest_code(masked: bool) -> Callable[..., None]:
    """The largest scores of a tile, a vector of lanes; masked, keys later than the lanes' `stands` are hidden."""

    def code(builder: Builder, score: Value, line_bytes: Value, first: Value, stands: Value, out: Value) -> None:
        largest = cgutils.alloca_once(builder, _FLOATS)
        builder.store(_floats(_HIDDEN), largest)
        position = _load(builder, stands, _WORDS)
        with cgutils.for_range(builder, _I64(TILE_KEYS)) as loop:
            at = builder.add(score, builder.mul(loop.index, line_bytes))
            found = _load(builder, at)
            if masked:
                key = _splat(builder, builder.trunc(builder.add(first, loop.index), _I32), _WORDS)
                found = builder.select(builder.icmp_signed("<=", key, position), found, _floats(_HIDDEN))
                _store(builder, found, at)
            known = builder.load(largest)
            builder.store(builder.select(builder.fcmp_ordered(">", found, known), found, known), largest)
        _store(builder, builder.load(largest), out)

    return code


def _raised(builder: Builder, largest: Value, reference: Value, total: Value, factor: Value, log_scale: Value) -> Value:
    """Raise the references that are too low, and their totals; `factor`: what other sums are to be multiplied by.

    1 where a reference was raised, else 0. `log_scale`: the bits of a float32, scores times it are powers of 2.
    """
    scale = _bits(builder, log_scale)
    found, old = _load(builder, largest), _load(builder, reference)
    up = builder.fcmp_ordered(">", builder.fmul(builder.fsub(found, old), scale), _floats(_SLACK))
    new = builder.select(up, found, old)
    times = _exp2(builder, builder.fmul(builder.fsub(old, new), scale))
    _store(builder, new, reference)
    _store(builder, builder.fmul(_load(builder, total), times), total)
    _store(builder, times, factor)
    return builder.zext(builder.icmp_unsigned("!=", builder.bitcast(up, _I16), _I16(0)), _I64)


def _weights(
    builder: Builder, score: Value, line_bytes: Value, reference: Value, total: Value, log_scale: Value, out: Value
) -> None:
    """A tile's weights, rounded to bfloat16, those of two keys side by side; their sum is added to `total`."""
    scale = _bits(builder, log_scale)
    less = builder.fneg(builder.fmul(_load(builder, reference), scale))
    running = cgutils.alloca_once(builder, _FLOATS)
    builder.store(_load(builder, total), running)
    with cgutils.for_range(builder, _I64(TILE_KEYS // 2)) as loop:
        line = builder.mul(loop.index, line_bytes)
        at = builder.add(score, builder.add(line, line))
        even = _exp2(builder, _fma(builder, _load(builder, at), scale, less))
        odd = _exp2(builder, _fma(builder, _load(builder, builder.add(at, line_bytes)), scale, less))
        builder.store(builder.fadd(builder.load(running), builder.fadd(even, odd)), running)
        low, high = (builder.add(builder.bitcast(each, _WORDS), _words(0x8000)) for each in (even, odd))
        word = builder.or_(builder.lshr(low, _words(16)), builder.and_(high, _words(0xFFFF0000)))
        _store(builder, word, builder.add(out, line))
    _store(builder, builder.load(running), total)


def _paired(builder: Builder, value: Value, row_bytes: Value, out: Value, dims: Value) -> None:
    """A tile's rows of bfloat16 `[dims]`, two and two, as words `[pairs of rows][dims]`: the first in the low half."""
    with cgutils.for_range(builder, _I64(TILE_KEYS // 2)) as pair:
        one = builder.add(value, builder.mul(pair.index, builder.add(row_bytes, row_bytes)))
        other = builder.add(one, row_bytes)
        to = builder.add(out, builder.mul(pair.index, builder.mul(dims, _I64(4))))
        with cgutils.for_range(builder, builder.udiv(dims, _I64(LANES))) as loop:
            at = builder.mul(loop.index, _I64(2 * LANES))
            low = builder.zext(_load(builder, builder.add(one, at), _HALVES), _WORDS)
            high = builder.zext(_load(builder, builder.add(other, at), _HALVES), _WORDS)
            word = builder.or_(low, builder.shl(high, _words(16)))
            _store(builder, word, builder.add(to, builder.add(at, at)))


def _scaled(builder: Builder, lines: Value, line_bytes: Value, factor: Value, out: Value) -> None:
    """One vector of lanes of each line times `factor`."""
    times = _load(builder, factor)
    with cgutils.for_range(builder, lines) as loop:
        at = builder.add(out, builder.mul(loop.index, line_bytes))
        _store(builder, builder.fmul(_load(builder, at), times), at)


def _counted(builder: Builder, counter: Value, by: Value) -> Value:
    """Add to an int64 that all threads share; what it was before."""
    return builder.atomic_rmw("add", builder.inttoptr(counter, _I64.as_pointer()), by, "seq_cst")


def _sums(builder: Builder, rows: int, vectors: int, begin: Value | None) -> list[list[Value]]:
    """Registers for sums: 0, or what stands at `begin`."""
    sums = [[cgutils.alloca_once(builder, _FLOATS) for _ in range(vectors)] for _ in range(rows)]
    for number, each in enumerate(total for row in sums for total in row):
        at = None if begin is None else builder.add(begin, _I64(VECTOR_BYTES * number))
        builder.store(_floats(0.0) if at is None else _load(builder, at), each)
    return sums


def _multiply(builder: Builder, sums: list[list[Value]], places: list[Value], lines: Value, index: Value) -> None:
    """Add to each row of sums its word times line `index` of `lines`."""
    vectors = len(sums[0])
    line = builder.add(lines, builder.mul(index, _I64(VECTOR_BYTES * vectors)))
    columns = [_load(builder, builder.add(line, _I64(VECTOR_BYTES * v)), _WORDS) for v in range(vectors)]
    for place, row in zip(places, sums, strict=True):
        word = builder.bitcast(_splat(builder, _load(builder, place, _I32), _WORDS), _PAIRS)
        for column, total in zip(columns, row, strict=True):
            operands = (builder.load(total), word, builder.bitcast(column, _PAIRS))
            builder.store(_call(builder, "llvm.x86.avx512bf16.dpbf16ps.512", *operands), total)


def _put(builder: Builder, sums: list[list[Value]], out: Value) -> None:
    for number, each in enumerate(total for row in sums for total in row):
        _store(builder, builder.load(each), builder.add(out, _I64(VECTOR_BYTES * number)))


def _exp2(builder: Builder, power: Value) -> Value:
    """2^power, 0 below 2^-126."""
    whole = _call(builder, "llvm.nearbyint.v16f32", power)
    part = builder.fsub(power, whole)
    out = _floats(_TERMS[0])
    for term in _TERMS[1:]:
        out = _fma(builder, out, part, _floats(term))
    shifted = builder.shl(builder.fptosi(whole, _WORDS), _words(23))
    out = builder.bitcast(builder.add(builder.bitcast(out, _WORDS), shifted), _FLOATS)
    return builder.select(builder.fcmp_ordered("<", power, _floats(-126.0)), _floats(0.0), out)


def _load(builder: Builder, address: Value, kind: Any = _FLOATS) -> Value:
    return builder.load(builder.inttoptr(address, kind.as_pointer()), align=2)


def _store(builder: Builder, vector: Value, address: Value) -> None:
    builder.store(vector, builder.inttoptr(address, vector.type.as_pointer()), align=4)


def _splat(builder: Builder, scalar: Value, kind: Any) -> Value:
    single = builder.insert_element(ir.Constant(kind, ir.Undefined), scalar, _I32(0))
    return builder.shuffle_vector(single, ir.Constant(kind, ir.Undefined), _words(0))


def _bits(builder: Builder, bits: Value) -> Value:
    return _splat(builder, builder.bitcast(builder.trunc(bits, _I32), ir.FloatType()), _FLOATS)


def _floats(number: float) -> Value:
    return ir.Constant(_FLOATS, [number] * LANES)


def _words(number: int) -> Value:
    return ir.Constant(_WORDS, [number] * LANES)


def _fma(builder: Builder, one: Value, other: Value, plus: Value) -> Value:
    return _call(builder, "llvm.fma.v16f32", one, other, plus)


def _call(builder: Builder, name: str, *args: Value) -> Value:
    """One of LLVM's own functions; all used here return what their first argument is."""
    kind = ir.FunctionType(args[0].type, [arg.type for arg in args])
    return builder.call(cgutils.get_or_insert_function(builder.module, kind, name), args)


def _function(code: Callable[..., Any], returns: Any = types.void) -> Any:
    """What numba may call: `code` with int64 for all its arguments but the builder."""
    names = list(inspect.signature(code).parameters)[1:]

    def typed(typing_context: Any, *args: Any) -> Any:
        def generate(context: Any, builder: Builder, signature: Any, args: tuple[Value, ...]) -> Value:
            out = code(builder, *args)
            return context.get_dummy_value() if returns is types.void else out

        return returns(*[types.int64] * len(args)), generate

    either = inspect.Parameter.POSITIONAL_OR_KEYWORD
    parameters = [inspect.Parameter(name, either) for name in ("typing_context", *names)]
    typed.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return intrinsic(typed)


scores_1, scores_2, scores_3, scores_4, scores_5, scores_6 = (_function(scores_code(v)) for v in REGISTER_ROWS)
values_1, values_2, values_3, values_4, values_5, values_6 = (_function(values_code(v)) for v in REGISTER_ROWS)
largest, largest_masked = _function(largest_code(False)), _function(largest_code(True))
raised, counted = _function(_raised, types.int64), _function(_counted, types.int64)
weights, paired, scaled = _function(_weights), _function(_paired), _function(_scaled)
pointer = _function(lambda builder, address: builder.inttoptr(address, ir.IntType(8).as_pointer()), types.voidptr)
