# mypy: disallow-untyped-decorators=False
"""Attention's compiled loops: one walk over keys and values a block of rows, no scores kept (FlashAttention's way:
arxiv 2205.14135, section 3.1; split over slots as in Flash-Decoding where there are few rows).

A unit is one KV head and one block of rows; the block's rows of all heads of the group are the lanes, so keys and
values are read once. Tile by tile: products (lanes side by side, a key a line), the tile's largest scores, weights
relative to the lane's reference, weighted values added to the sums. Keys later than a lane's position are hidden in
tiles that reach beyond the block's first position; tiles beyond its last are never read. Where there are fewer units
than threads can share, each is split over slots, and who finishes a unit's last split puts them together.

Every thread of a team calls `run` and takes items off a shared counter until none is left. Few rows, as in decoding,
have a walk of their own (few_lanes.py).
"""

# Calls: 5d539527c218
# numba's cache watches the text of the file that holds a loop alone: this is the digest of what the loops here call, so
# that none compiled before a change is used after it (tests/models/test_loops_cached.py).

from typing import Any

import numba
import numpy as np
from numba.np.numpy_support import carray

from models.attention.few_lanes import few_item
from models.attention.job import COMPILE, ENDLESS, JOB, Address, Job, copy_rows, rounded
from models.attention.llvm import LANES, VECTOR_BYTES, pointer
from models.attention.vectors import (
    TILE_KEYS,
    UNSEEN,
    counted,
    largest,
    largest_masked,
    paired,
    raised,
    scaled,
    scores_1,
    scores_2,
    scores_3,
    scores_4,
    scores_5,
    scores_6,
    values_1,
    values_2,
    values_3,
    values_4,
    values_5,
    values_6,
    weights,
)

MOST_LANES = 6 * LANES
_U32, _I32, _F32 = np.uint32, np.int32, np.float32


def partial_bytes(head_dim: int) -> int:
    """What a split leaves: sums `[head_dim][lane]`, references and totals `[lane]`, float32."""
    return (head_dim + 2) * MOST_LANES * 4


def scratch_bytes(head_dim: int) -> int:
    """Queries, scores, weights, values two and two, a last tile, and the lanes' own numbers of one item."""
    lines = head_dim // 2 + TILE_KEYS + TILE_KEYS // 2 + 3 + head_dim + 2
    return (lines * MOST_LANES + TILE_KEYS * head_dim) * 4


@numba.njit(**COMPILE)
def _item(job: Job, number: int, scratch: Address) -> None:
    """One split of one unit; the longest units come first."""
    unit, split = number // job.splits, number % job.splits
    block, head = job.blocks - 1 - unit // job.kv_heads, unit % job.kv_heads
    first_row, dim = block * job.block_rows, job.head_dim
    rows = min(job.block_rows, job.rows - first_row)
    vectors = (job.group * rows + LANES - 1) // LANES
    line = vectors * VECTOR_BYTES
    query = scratch
    score = query + dim // 2 * line
    weight = score + TILE_KEYS * line
    pair = weight + TILE_KEYS // 2 * line
    last_tile = pair + TILE_KEYS // 2 * dim * 4
    stands = last_tile + TILE_KEYS * dim * 2
    top, factor = stands + line, stands + 2 * line
    out = stands + 3 * line if job.splits == 1 else job.partial + number * job.partial_bytes
    reference, total = out + dim * line, out + (dim + 1) * line
    _begin(job, head, first_row, rows, vectors, query, stands, out)
    positions = carray(pointer(job.positions), ENDLESS, np.int64)
    end, seen_by_all = min(positions[first_row + rows - 1] + 1, job.slots), positions[first_row] + 1
    tiles = (end + TILE_KEYS - 1) // TILE_KEYS
    for tile in range(tiles * split // job.splits, tiles * (split + 1) // job.splits):
        first = tile * TILE_KEYS
        key, key_row = job.key + head * job.key_head + first * job.key_row, job.key_row
        value, value_row = job.value + head * job.value_head + first * job.value_row, job.value_row
        if first + TILE_KEYS > end:  # the memory behind the last slot is not ours to read
            copy_rows(key, key_row, end - first, TILE_KEYS, dim, last_tile)
            key, key_row = last_tile, dim * 2
        _scores(vectors, key, key_row, query, score, dim // 2)
        if first + TILE_KEYS > end:
            copy_rows(value, value_row, end - first, TILE_KEYS, dim, last_tile)
            value, value_row = last_tile, dim * 2
        paired(value, value_row, pair, dim)
        for vector in range(vectors):
            at = vector * VECTOR_BYTES
            if first + TILE_KEYS > seen_by_all:
                largest_masked(score + at, line, first, stands + at, top + at)
            else:
                largest(score + at, line, first, stands + at, top + at)
            if raised(top + at, reference + at, total + at, factor + at, job.log_scale):
                scaled(dim, line, factor + at, out + at)
            weights(score + at, line, reference + at, total + at, job.log_scale, weight + at)
        _values(vectors, pair, dim * 4, weight, out, dim)
    if job.splits > 1:
        if counted(job.counters + 8 * (1 + unit), 1) + 1 < job.splits:
            return
        out = job.partial + unit * job.splits * job.partial_bytes
        _join(job, out, line, top, factor)
    _finish(job, head, first_row, rows, vectors * LANES, out)


@numba.njit(**COMPILE)
def _begin(
    job: Job, head: int, first_row: int, rows: int, vectors: int, query: Address, stands: Address, out: Address
) -> None:
    """Pack the queries `[pairs of dimensions][lane]`, set positions, references, totals and sums."""
    lanes, dim = vectors * LANES, job.head_dim
    packed = carray(pointer(query), ENDLESS, np.int32)
    position = carray(pointer(stands), ENDLESS, np.int32)
    positions = carray(pointer(job.positions), ENDLESS, np.int64)
    for lane in range(lanes):
        member, row = lane // rows, lane % rows
        if member < job.group:
            position[lane] = _I32(positions[first_row + row])
            at = job.query + (head * job.group + member) * job.query_head + (first_row + row) * job.query_row
            pairs = carray(pointer(at), ENDLESS, np.int32)
            for d in range(dim // 2):
                packed[d * lanes + lane] = pairs[d]
        else:  # a lane without a query
            position[lane] = _I32(positions[first_row])
            for d in range(dim // 2):
                packed[d * lanes + lane] = _I32(0)
    sums = carray(pointer(out), ENDLESS, np.float32)
    sums[: dim * lanes] = _F32(0)
    sums[dim * lanes : (dim + 1) * lanes] = _F32(UNSEEN)
    sums[(dim + 1) * lanes : (dim + 2) * lanes] = _F32(0)


@numba.njit(**COMPILE)
def _scores(vectors: int, key: Address, key_row: int, query: Address, out: Address, pairs: int) -> None:
    if vectors == 1:
        scores_1(key, key_row, query, out, pairs)
    elif vectors == 2:
        scores_2(key, key_row, query, out, pairs)
    elif vectors == 3:
        scores_3(key, key_row, query, out, pairs)
    elif vectors == 4:
        scores_4(key, key_row, query, out, pairs)
    elif vectors == 5:
        scores_5(key, key_row, query, out, pairs)
    else:
        scores_6(key, key_row, query, out, pairs)


@numba.njit(**COMPILE)
def _values(vectors: int, pair: Address, pair_line: int, weight: Address, out: Address, dim: int) -> None:
    if vectors == 1:
        values_1(pair, pair_line, weight, out, dim)
    elif vectors == 2:
        values_2(pair, pair_line, weight, out, dim)
    elif vectors == 3:
        values_3(pair, pair_line, weight, out, dim)
    elif vectors == 4:
        values_4(pair, pair_line, weight, out, dim)
    elif vectors == 5:
        values_5(pair, pair_line, weight, out, dim)
    else:
        values_6(pair, pair_line, weight, out, dim)


@numba.njit(**COMPILE)
def _join(job: Job, first: Address, line: int, ours: Address, theirs: Address) -> None:
    """Add all splits of a unit to its first, relative to the higher reference of both."""
    dim, lanes = job.head_dim, line // 4
    log_scale = _U32(job.log_scale).view(_F32)
    keep, take = carray(pointer(ours), (lanes,), np.float32), carray(pointer(theirs), (lanes,), np.float32)
    sums = carray(pointer(first), (dim + 2, lanes), np.float32)
    for split in range(1, job.splits):
        added = carray(pointer(first + split * job.partial_bytes), (dim + 2, lanes), np.float32)
        for lane in range(lanes):
            reference = max(sums[dim, lane], added[dim, lane])
            keep[lane] = np.exp2((sums[dim, lane] - reference) * log_scale)
            take[lane] = np.exp2((added[dim, lane] - reference) * log_scale)
            sums[dim, lane] = reference
        for d in range(dim + 2):
            if d != dim:
                for lane in range(lanes):
                    sums[d, lane] = sums[d, lane] * keep[lane] + added[d, lane] * take[lane]


@numba.njit(**COMPILE)
def _finish(job: Job, head: int, first_row: int, rows: int, lanes: int, out: Address) -> None:
    """Divide by the totals and write bfloat16."""
    dim = job.head_dim
    sums = carray(pointer(out), (dim + 2, lanes), np.float32)
    for lane in range(job.group * rows):
        member, row = lane // rows, lane % rows
        at = job.out + (head * job.group + member) * job.out_head + (first_row + row) * job.out_row
        to = carray(pointer(at), (dim,), np.uint16)
        share = _F32(1) / sums[dim + 1, lane]
        for d in range(dim):
            to[d] = rounded(sums[d, lane] * share)


@numba.cfunc("void(voidptr)", cache=True, error_model="numpy")
def run(data: Any) -> None:
    """What each thread of a team does: items of the `JOB` at `data` until all are taken."""
    job = carray(data, 1, JOB)[0]
    scratch = np.empty(job.scratch_bytes + VECTOR_BYTES, np.uint8)
    begin = (scratch.ctypes.data + VECTOR_BYTES - 1) // VECTOR_BYTES * VECTOR_BYTES
    number = counted(job.counters, 1)
    while number < job.items:
        if job.few:
            few_item(job, number, begin)
        else:
            _item(job, number, begin)
        number = counted(job.counters, 1)
    scratch[0] = 0  # numba frees an array after the last line that names it, and an address is no name
