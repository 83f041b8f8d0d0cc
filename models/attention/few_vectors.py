"""Vector code for few lanes (few_lanes.py): vectors lie along keys and dimensions, not along queries.

A lane is a query row of one head; all of its numbers lie together. Arguments are int64: addresses, and distances in
bytes. head_dim is a multiple of 32.
"""

from collections.abc import Callable

from numba import types

from models.attention.llvm import (
    FLOATS,
    HALVES,
    I32,
    I64,
    LANES,
    PAIRS,
    QUARTER,
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
    shuffle,
    splat,
    store,
    words,
)
from models.attention.vectors import HIDDEN, TILE_KEYS

FEW_DIMS = 2 * LANES  # of a key, in one vector of bfloat16
BLOCK_LANES = 4  # lanes whose sums stay in registers
_GROUPS = 4  # of keys, whose products lie in the quarters of one vector
_SCORE_LINE, _WEIGHT_LINE = 4 * TILE_KEYS, 2 * TILE_KEYS


def _picked(runs: list[int], length: int) -> list[int]:
    """Elements of two vectors laid end to end: runs of a length, by where they begin."""
    return [begin + i for begin in runs for i in range(length)]


# How two vectors of 16 words become two others: halves put together; every other quarter; within each quarter words in
# turn; pairs. And two rows of 32 values: a value of each in turn.
_HALVED = _picked([0, 16], 8), _picked([8, 24], 8)
_QUARTERS = _picked([0, 8, 16, 24], 4), _picked([4, 12, 20, 28], 4)
_TURNS = tuple([q + i + other for q in range(0, 16, 4) for i in half for other in (0, 16)] for half in ((0, 1), (2, 3)))
_TWOS = tuple(_picked([q + other + i for q in range(0, 16, 4) for other in (0, 16)], 2) for i in (0, 2))
_ROWS_IN_TURN = tuple([i + other for i in half for other in (0, 32)] for half in (range(16), range(16, 32)))


def products_code(lanes: int) -> Callable[..., None]:
    """A tile's products `out[lane][key]` of its keys and the queries `[lane][dimension]`."""

    def code(builder: Builder, key: Value, key_bytes: Value, query: Value, out: Value, dims: Value) -> None:
        queries = [builder.add(query, builder.mul(dims, I64(2 * lane))) for lane in range(lanes)]
        with cgutils.for_range(builder, I64(TILE_KEYS // LANES)) as part:
            places = [builder.add(key, builder.mul(builder.mul(part.index, I64(LANES)), key_bytes))]
            for _ in range(LANES - 1):
                places.append(builder.add(places[-1], key_bytes))
            sums = _registers(builder, [[floats(0.0)] * _GROUPS for _ in queries])
            with cgutils.for_range(builder, builder.udiv(dims, I64(FEW_DIMS))) as loop:
                at = builder.mul(loop.index, I64(VECTOR_BYTES))
                _multiply(
                    builder, [builder.add(each, at) for each in places], [builder.add(q, at) for q in queries], sums
                )
            for number, lane in enumerate(sums):
                one, two, three, four = (builder.load(total) for total in lane)
                pairs = _folded(builder, one, two, _TURNS), _folded(builder, three, four, _TURNS)
                at = builder.add(builder.mul(part.index, I64(VECTOR_BYTES)), I64(number * _SCORE_LINE))
                store(builder, _folded(builder, *pairs, _TWOS), builder.add(out, at))

    return code


def _multiply(builder: Builder, places: list[Value], queries: list[Value], sums: list[list[Value]]) -> None:
    """Add 32 dimensions' products of 16 keys: of keys `g`, `g + 4`, `g + 8`, `g + 12` in the quarters of sum `g`."""
    eights = [[_eight(builder, builder.add(query, I64(16 * i))) for i in range(4)] for query in queries]
    for group in range(_GROUPS):
        one, two, three, four = (load(builder, place, WORDS) for place in places[group::_GROUPS])
        columns = []
        for half in _HALVED:
            left, right = shuffle(builder, one, two, half), shuffle(builder, three, four, half)
            columns += [shuffle(builder, left, right, quarters) for quarters in _QUARTERS]
        for eight, lane in zip(eights, sums, strict=True):
            for query, column in zip(eight, columns, strict=True):
                builder.store(dot_pairs(builder, builder.load(lane[group]), query, column), lane[group])


def _eight(builder: Builder, address: Value) -> Value:
    """Eight numbers of bfloat16 in each quarter."""
    found = load(builder, address, QUARTER)
    return shuffle(builder, found, found, [0, 1, 2, 3] * 4)


def _folded(builder: Builder, one: Value, other: Value, halves: tuple[list[int], ...]) -> Value:
    """Half as many numbers of each of two vectors, in one."""
    low, high = (shuffle(builder, one, other, half) for half in halves)
    return builder.fadd(low, high)


def _hidden(builder: Builder, score: Value, first: Value, stands: Value) -> None:
    """Hide a lane's scores of keys later than the position where it stands."""
    position = splat(builder, builder.trunc(builder.sub(stands, first), I32), WORDS)
    for number in range(0, TILE_KEYS, LANES):
        at = builder.add(score, I64(4 * number))
        seen = builder.icmp_signed("<=", WORDS(list(range(number, number + LANES))), position)
        store(builder, builder.select(seen, load(builder, at), floats(HIDDEN)), at)


def _top(builder: Builder, score: Value) -> Value:
    """The largest of a lane's scores, float32."""
    found = [load(builder, builder.add(score, I64(4 * number))) for number in range(0, TILE_KEYS, LANES)]
    while len(found) > 1:
        found = [_larger(builder, *found[at : at + 2]) for at in range(0, len(found), 2)]
    out = found[0]
    for apart in (8, 4, 2, 1):
        out = _larger(builder, out, shuffle(builder, out, out, [(i + apart) % LANES for i in range(LANES)]))
    return builder.extract_element(out, I32(0))


def _larger(builder: Builder, one: Value, other: Value) -> Value:
    return builder.select(builder.fcmp_ordered(">", one, other), one, other)


def _lane_weights(builder: Builder, score: Value, reference: Value, total: Value, log_scale: Value, out: Value) -> None:
    """A lane's weights `[key]`, rounded to bfloat16; their sums, key by key of a vector, are added to `total`."""
    scale = bits(builder, log_scale)
    below = splat(builder, load(builder, reference, FLOATS.element), FLOATS)
    less = builder.fneg(builder.fmul(below, scale))
    running = load(builder, total)
    for number in range(0, TILE_KEYS, LANES):
        weight = exp2(builder, fma(builder, load(builder, builder.add(score, I64(4 * number))), scale, less))
        running = builder.fadd(running, weight)
        word = builder.lshr(builder.add(builder.bitcast(weight, WORDS), words(0x8000)), words(16))
        store(builder, builder.trunc(word, HALVES), builder.add(out, I64(2 * number)))
    store(builder, running, total)


def sums_code(lanes: int) -> Callable[..., None]:
    """Add to the sums `out[lane][dimension]`, `out_bytes` a lane, a tile's weights `[lane][key]` times its values."""

    def code(
        builder: Builder, value: Value, value_bytes: Value, weight: Value, out: Value, out_bytes: Value, dims: Value
    ) -> None:
        with cgutils.for_range(builder, builder.udiv(dims, I64(FEW_DIMS))) as block:
            place = builder.add(value, builder.mul(block.index, I64(VECTOR_BYTES)))
            lines = [builder.add(out, builder.mul(block.index, I64(2 * VECTOR_BYTES)))]
            for _ in range(lanes - 1):
                lines.append(builder.add(lines[-1], out_bytes))
            to = [[line, builder.add(line, I64(VECTOR_BYTES))] for line in lines]
            sums = _registers(builder, [[load(builder, at) for at in line] for line in to])
            with cgutils.for_range(builder, I64(TILE_KEYS // 2)) as loop:
                one = builder.add(place, builder.mul(loop.index, builder.add(value_bytes, value_bytes)))
                weights = builder.add(weight, builder.mul(loop.index, I64(4)))
                _add_pair(builder, one, builder.add(one, value_bytes), weights, sums)
            for line, lane in zip(to, sums, strict=True):
                for at, total in zip(line, lane, strict=True):
                    store(builder, builder.load(total), at)

    return code


def _registers(builder: Builder, begin: list[list[Value]]) -> list[list[Value]]:
    """Places for sums, which become registers, with what each begins with."""
    places = [[cgutils.alloca_once(builder, FLOATS) for _ in lane] for lane in begin]
    for lane, values in zip(places, begin, strict=True):
        for place, value in zip(lane, values, strict=True):
            builder.store(value, place)
    return places


def _add_pair(builder: Builder, one: Value, other: Value, weight: Value, sums: list[list[Value]]) -> None:
    """Add to the sums `[lane][half]` 32 dimensions of two values by each lane's weights of both."""
    rows = load(builder, one, PAIRS), load(builder, other, PAIRS)
    columns = [shuffle(builder, *rows, turn) for turn in _ROWS_IN_TURN]
    for number, lane in enumerate(sums):
        word = splat(builder, load(builder, builder.add(weight, I64(number * _WEIGHT_LINE)), I32), WORDS)
        for column, total in zip(columns, lane, strict=True):
            builder.store(dot_pairs(builder, builder.load(total), column, word), total)


products_1, products_2, products_3, products_4 = (function(products_code(lanes)) for lanes in range(1, BLOCK_LANES + 1))
sums_1, sums_2, sums_3, sums_4 = (function(sums_code(lanes)) for lanes in range(1, BLOCK_LANES + 1))
hidden, top, lane_weights = function(_hidden), function(_top, types.float32), function(_lane_weights)
