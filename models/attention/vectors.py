"""Vector code for the compiled loops (loops.py): what numba cannot say, in LLVM's own words, 16 lanes at a time.

A lane is a query row of one head. `vectors` vectors of 16 lanes stand side by side; a line is one key, one dimension or
one pair of them over all lanes. Arguments are int64: addresses, and distances in bytes. Products are AVX-512's
`vdpbf16ps`: two bfloat16 products a lane, summed in float32.
"""

from collections.abc import Callable

from numba import types

from models.attention.llvm import (
    FLOATS,
    HALVES,
    I16,
    I32,
    I64,
    LANES,
    VECTOR_BYTES,
    WORDS,
    Builder,
    Value,
    bits,
    cgutils,
    dot_pairs,
    exp2,
    floats,
    fma,
    function,
    load,
    splat,
    store,
    words,
)

TILE_KEYS = 32
# Keys (of scores) or dimensions (of values) whose sums stay in registers, by vectors: at most 24 of the 32 registers.
REGISTER_ROWS = {1: 16, 2: 8, 3: 8, 4: 4, 5: 4, 6: 4}
# A lane's reference is raised only when its largest score is 2^8 above: weights stay finite, sums are seldom scaled.
SLACK = 8.0
HIDDEN, UNSEEN = -1e30, -1e20  # a later key's score, far below the reference of a lane that has seen no key yet


def scores_code(vectors: int) -> Callable[..., None]:
    """A tile's products `out[key][lane]` of its keys and the packed queries `[pairs of dimensions][lane]`."""
    count = REGISTER_ROWS[vectors]

    def code(builder: Builder, key: Value, key_bytes: Value, query: Value, out: Value, pairs: Value) -> None:
        with cgutils.for_range(builder, I64(TILE_KEYS // count)) as block:
            first = builder.mul(block.index, I64(count))
            places = [builder.add(key, builder.mul(first, key_bytes))]
            for _ in range(count - 1):
                places.append(builder.add(places[-1], key_bytes))
            to = builder.add(out, builder.mul(first, I64(VECTOR_BYTES * vectors)))
            sums = _sums(builder, count, vectors, None)
            with cgutils.for_range(builder, pairs) as loop:
                at = builder.mul(loop.index, I64(4))
                _multiply(builder, sums, [builder.add(place, at) for place in places], query, loop.index)
            _put(builder, sums, to)

    return code


def values_code(vectors: int) -> Callable[..., None]:
    """Add to the sums `out[dimension][lane]` a tile's weights `[pairs of keys][lane]` times its paired values."""
    count = REGISTER_ROWS[vectors]

    def code(builder: Builder, value: Value, line_bytes: Value, weight: Value, out: Value, dims: Value) -> None:
        with cgutils.for_range(builder, builder.udiv(dims, I64(count))) as block:
            first = builder.mul(block.index, I64(count))
            place = builder.add(value, builder.mul(first, I64(4)))
            to = builder.add(out, builder.mul(first, I64(VECTOR_BYTES * vectors)))
            sums = _sums(builder, count, vectors, to)
            with cgutils.for_range(builder, I64(TILE_KEYS // 2)) as loop:
                at = builder.add(place, builder.mul(loop.index, line_bytes))
                _multiply(builder, sums, [builder.add(at, I64(4 * d)) for d in range(count)], weight, loop.index)
            _put(builder, sums, to)

    return code


def largest_code(masked: bool) -> Callable[..., None]:
    """The largest scores of a tile, a vector of lanes; masked, keys later than the lanes' `stands` are hidden."""

    def code(builder: Builder, score: Value, line_bytes: Value, first: Value, stands: Value, out: Value) -> None:
        largest = cgutils.alloca_once(builder, FLOATS)
        builder.store(floats(HIDDEN), largest)
        position = load(builder, stands, WORDS)
        with cgutils.for_range(builder, I64(TILE_KEYS)) as loop:
            at = builder.add(score, builder.mul(loop.index, line_bytes))
            found = load(builder, at)
            if masked:
                key = splat(builder, builder.trunc(builder.add(first, loop.index), I32), WORDS)
                found = builder.select(builder.icmp_signed("<=", key, position), found, floats(HIDDEN))
                store(builder, found, at)
            known = builder.load(largest)
            builder.store(builder.select(builder.fcmp_ordered(">", found, known), found, known), largest)
        store(builder, builder.load(largest), out)

    return code


def _raised(builder: Builder, largest: Value, reference: Value, total: Value, factor: Value, log_scale: Value) -> Value:
    """Raise the references that are too low, and their totals; `factor`: what other sums are to be multiplied by.

    1 where a reference was raised, else 0. `log_scale`: the bits of a float32, scores times it are powers of 2.
    """
    scale = bits(builder, log_scale)
    found, old = load(builder, largest), load(builder, reference)
    up = builder.fcmp_ordered(">", builder.fmul(builder.fsub(found, old), scale), floats(SLACK))
    new = builder.select(up, found, old)
    times = exp2(builder, builder.fmul(builder.fsub(old, new), scale))
    store(builder, new, reference)
    store(builder, builder.fmul(load(builder, total), times), total)
    store(builder, times, factor)
    return builder.zext(builder.icmp_unsigned("!=", builder.bitcast(up, I16), I16(0)), I64)


def _weights(
    builder: Builder, score: Value, line_bytes: Value, reference: Value, total: Value, log_scale: Value, out: Value
) -> None:
    """A tile's weights, rounded to bfloat16, those of two keys side by side; their sum is added to `total`."""
    scale = bits(builder, log_scale)
    less = builder.fneg(builder.fmul(load(builder, reference), scale))
    running = cgutils.alloca_once(builder, FLOATS)
    builder.store(load(builder, total), running)
    with cgutils.for_range(builder, I64(TILE_KEYS // 2)) as loop:
        line = builder.mul(loop.index, line_bytes)
        at = builder.add(score, builder.add(line, line))
        even = exp2(builder, fma(builder, load(builder, at), scale, less))
        odd = exp2(builder, fma(builder, load(builder, builder.add(at, line_bytes)), scale, less))
        builder.store(builder.fadd(builder.load(running), builder.fadd(even, odd)), running)
        low, high = (builder.add(builder.bitcast(each, WORDS), words(0x8000)) for each in (even, odd))
        word = builder.or_(builder.lshr(low, words(16)), builder.and_(high, words(0xFFFF0000)))
        store(builder, word, builder.add(out, line))
    store(builder, builder.load(running), total)


def _paired(builder: Builder, value: Value, row_bytes: Value, out: Value, dims: Value) -> None:
    """A tile's rows of bfloat16 `[dims]`, two and two, as words `[pairs of rows][dims]`: the first in the low half."""
    with cgutils.for_range(builder, I64(TILE_KEYS // 2)) as pair:
        one = builder.add(value, builder.mul(pair.index, builder.add(row_bytes, row_bytes)))
        other = builder.add(one, row_bytes)
        to = builder.add(out, builder.mul(pair.index, builder.mul(dims, I64(4))))
        with cgutils.for_range(builder, builder.udiv(dims, I64(LANES))) as loop:
            at = builder.mul(loop.index, I64(2 * LANES))
            low = builder.zext(load(builder, builder.add(one, at), HALVES), WORDS)
            high = builder.zext(load(builder, builder.add(other, at), HALVES), WORDS)
            word = builder.or_(low, builder.shl(high, words(16)))
            store(builder, word, builder.add(to, builder.add(at, at)))


def _scaled(builder: Builder, lines: Value, line_bytes: Value, factor: Value, out: Value) -> None:
    """One vector of lanes of each line times `factor`."""
    times = load(builder, factor)
    with cgutils.for_range(builder, lines) as loop:
        at = builder.add(out, builder.mul(loop.index, line_bytes))
        store(builder, builder.fmul(load(builder, at), times), at)


def _counted(builder: Builder, counter: Value, by: Value) -> Value:
    """Add to an int64 that all threads share; what it was before."""
    return builder.atomic_rmw("add", builder.inttoptr(counter, I64.as_pointer()), by, "seq_cst")


def _sums(builder: Builder, rows: int, vectors: int, begin: Value | None) -> list[list[Value]]:
    """Registers for sums: 0, or what stands at `begin`."""
    sums = [[cgutils.alloca_once(builder, FLOATS) for _ in range(vectors)] for _ in range(rows)]
    for number, each in enumerate(total for row in sums for total in row):
        at = None if begin is None else builder.add(begin, I64(VECTOR_BYTES * number))
        builder.store(floats(0.0) if at is None else load(builder, at), each)
    return sums


def _multiply(builder: Builder, sums: list[list[Value]], places: list[Value], lines: Value, index: Value) -> None:
    """Add to each row of sums its word times line `index` of `lines`."""
    vectors = len(sums[0])
    line = builder.add(lines, builder.mul(index, I64(VECTOR_BYTES * vectors)))
    columns = [load(builder, builder.add(line, I64(VECTOR_BYTES * v)), WORDS) for v in range(vectors)]
    for place, row in zip(places, sums, strict=True):
        word = splat(builder, load(builder, place, I32), WORDS)
        for column, total in zip(columns, row, strict=True):
            builder.store(dot_pairs(builder, builder.load(total), word, column), total)


def _put(builder: Builder, sums: list[list[Value]], out: Value) -> None:
    for number, each in enumerate(total for row in sums for total in row):
        store(builder, builder.load(each), builder.add(out, I64(VECTOR_BYTES * number)))


scores_1, scores_2, scores_3, scores_4, scores_5, scores_6 = (function(scores_code(v)) for v in REGISTER_ROWS)
values_1, values_2, values_3, values_4, values_5, values_6 = (function(values_code(v)) for v in REGISTER_ROWS)
largest, largest_masked = function(largest_code(False)), function(largest_code(True))
raised, counted = function(_raised, types.int64), function(_counted, types.int64)
weights, paired, scaled = function(_weights), function(_paired), function(_scaled)
