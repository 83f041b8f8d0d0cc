# mypy: disallow-untyped-decorators=False
"""The walk for few lanes, as in decoding: as loops.py's, but vectors lie along keys and dimensions, not along queries.

A unit is one KV head with all rows of all heads of its group, at most `FEW_LANES` lanes, split over slots between the
threads (Flash-Decoding). The numbers are rounded where loops.py rounds them.
"""

# Calls: 1f2471014504

import numba
import numpy as np
from numba.np.numpy_support import carray

from models.attention.few_vectors import (
    BLOCK_LANES,
    hidden,
    lane_weights,
    products_1,
    products_2,
    products_3,
    products_4,
    sums_1,
    sums_2,
    sums_3,
    sums_4,
    top,
)
from models.attention.job import COMPILE, ENDLESS, Address, Job, copy_rows, rounded
from models.attention.llvm import LANES, VECTOR_BYTES, pointer, prefetch
from models.attention.vectors import SLACK, TILE_KEYS, UNSEEN, counted

# Of the other walk's time 8 lanes take 0.64, 12 lanes 0.86, 16 lanes 1.08 (2,000 slots, head_dim 64).
FEW_LANES = 12
# Tiles between what is read and what is asked for: read in this order, rows are not foreseen by the processor, and its
# first cache has too few open misses; those of the second are enough (`prefetcht0` gained nothing).
_AHEAD = 2
_U32, _F32 = np.uint32, np.float32


def few_partial_bytes(head_dim: int, lanes: int) -> int:
    """What a split leaves: by lane its sums `[head_dim]` and totals `[16]`, then the references `[16]`, float32."""
    return (lanes * (head_dim + LANES) + LANES) * 4


def few_scratch_bytes(head_dim: int, lanes: int) -> int:
    """Queries, scores, weights, a last tile and the sums of one item."""
    lane = head_dim * 2 + TILE_KEYS * 6
    return lanes * lane + TILE_KEYS * head_dim * 2 + few_partial_bytes(head_dim, lanes)


@numba.njit(**COMPILE)
def few_item(job: Job, number: int, scratch: Address) -> None:
    """One split of one unit."""
    head, split = number // job.splits, number % job.splits
    lanes, dim = job.group * job.rows, job.head_dim
    line = (dim + LANES) * 4
    score = scratch + lanes * dim * 2
    weight = score + lanes * TILE_KEYS * 4
    last_tile = weight + lanes * TILE_KEYS * 2
    out = last_tile + TILE_KEYS * dim * 2 if job.splits == 1 else job.partial + number * job.partial_bytes
    _begin(job, head, lanes, scratch, out)
    positions = carray(pointer(job.positions), ENDLESS, np.int64)
    end = min(positions[job.rows - 1] + 1, job.slots)
    tiles = (end + TILE_KEYS - 1) // TILE_KEYS
    last = tiles * (split + 1) // job.splits
    for tile in range(tiles * split // job.splits, last):
        first = tile * TILE_KEYS
        key, key_row = job.key + head * job.key_head + first * job.key_row, job.key_row
        value, value_row = job.value + head * job.value_head + first * job.value_row, job.value_row
        if first + TILE_KEYS > end:  # the memory behind the last slot is not ours to read
            copy_rows(key, key_row, end - first, TILE_KEYS, dim, last_tile)
            key, key_row = last_tile, dim * 2
        if tile + _AHEAD < last:
            _ask(key + _AHEAD * TILE_KEYS * key_row, key_row, dim)
        _products(lanes, key, key_row, scratch, score, dim)
        _weigh(job, lanes, first, score, weight, out)
        if first + TILE_KEYS > end:
            copy_rows(value, value_row, end - first, TILE_KEYS, dim, last_tile)
            value, value_row = last_tile, dim * 2
        if tile + _AHEAD < last:
            _ask(value + _AHEAD * TILE_KEYS * value_row, value_row, dim)
        _sums(lanes, value, value_row, weight, out, line, dim)
    if job.splits > 1:
        if counted(job.counters + 8 * (1 + head), 1) + 1 < job.splits:
            return
        out = job.partial + head * job.splits * job.partial_bytes
        _join(job, lanes, out)
    _finish(job, head, lanes, out)


@numba.njit(**COMPILE)
def _ask(rows: Address, row_bytes: int, dim: int) -> None:
    """Ask for a tile `[TILE_KEYS][dim]`."""
    for number in range(TILE_KEYS):
        for at in range(0, dim * 2, VECTOR_BYTES):
            prefetch(rows + number * row_bytes + at)


@numba.njit(**COMPILE)
def _begin(job: Job, head: int, lanes: int, query: Address, out: Address) -> None:
    """Lay the queries together `[lane][dimension]`; set sums, totals and references."""
    dim = job.head_dim
    packed = carray(pointer(query), (lanes, dim), np.uint16)
    for lane in range(lanes):
        member, row = lane // job.rows, lane % job.rows
        at = job.query + (head * job.group + member) * job.query_head + row * job.query_row
        packed[lane] = carray(pointer(at), (dim,), np.uint16)
    sums = carray(pointer(out), ENDLESS, np.float32)
    sums[: lanes * (dim + LANES)] = _F32(0)
    sums[lanes * (dim + LANES) : lanes * (dim + LANES) + LANES] = _F32(UNSEEN)


@numba.njit(**COMPILE)
def _weigh(job: Job, lanes: int, first: int, score: Address, weight: Address, out: Address) -> None:
    """Weights of a tile, relative to each lane's reference; a reference that is too low is raised."""
    numbers = job.head_dim + LANES
    log_scale = _U32(job.log_scale).view(_F32)
    positions = carray(pointer(job.positions), ENDLESS, np.int64)
    references = carray(pointer(out + lanes * numbers * 4), (lanes,), np.float32)
    sums = carray(pointer(out), (lanes, numbers), np.float32)
    for lane in range(lanes):
        at, stands = score + lane * TILE_KEYS * 4, positions[lane % job.rows]
        if first + TILE_KEYS > stands + 1:
            hidden(at, first, stands)
        largest = top(at)
        if (largest - references[lane]) * log_scale > SLACK:
            factor = np.exp2((references[lane] - largest) * log_scale)
            references[lane] = largest
            for number in range(numbers):
                sums[lane, number] *= factor
        reference, total = out + (lanes * numbers + lane) * 4, out + (lane * numbers + job.head_dim) * 4
        lane_weights(at, reference, total, job.log_scale, weight + lane * TILE_KEYS * 2)


@numba.njit(**COMPILE)
def _products(lanes: int, key: Address, key_row: int, query: Address, out: Address, dim: int) -> None:
    for done in range(0, lanes, BLOCK_LANES):
        some, queries, scores = min(lanes - done, BLOCK_LANES), query + done * dim * 2, out + done * TILE_KEYS * 4
        if some == 1:
            products_1(key, key_row, queries, scores, dim)
        elif some == 2:
            products_2(key, key_row, queries, scores, dim)
        elif some == 3:
            products_3(key, key_row, queries, scores, dim)
        else:
            products_4(key, key_row, queries, scores, dim)


@numba.njit(**COMPILE)
def _sums(lanes: int, value: Address, value_row: int, weight: Address, out: Address, line: int, dim: int) -> None:
    for done in range(0, lanes, BLOCK_LANES):
        some, weights, sums = min(lanes - done, BLOCK_LANES), weight + done * TILE_KEYS * 2, out + done * line
        if some == 1:
            sums_1(value, value_row, weights, sums, line, dim)
        elif some == 2:
            sums_2(value, value_row, weights, sums, line, dim)
        elif some == 3:
            sums_3(value, value_row, weights, sums, line, dim)
        else:
            sums_4(value, value_row, weights, sums, line, dim)


@numba.njit(**COMPILE)
def _join(job: Job, lanes: int, first: Address) -> None:
    """Add all splits of a unit to its first, relative to the higher reference of both."""
    numbers = job.head_dim + LANES
    log_scale = _U32(job.log_scale).view(_F32)
    sums = carray(pointer(first), (lanes, numbers), np.float32)
    references = carray(pointer(first + lanes * numbers * 4), (lanes,), np.float32)
    for split in range(1, job.splits):
        at = first + split * job.partial_bytes
        added = carray(pointer(at), (lanes, numbers), np.float32)
        theirs = carray(pointer(at + lanes * numbers * 4), (lanes,), np.float32)
        for lane in range(lanes):
            reference = max(references[lane], theirs[lane])
            keep = np.exp2((references[lane] - reference) * log_scale)
            take = np.exp2((theirs[lane] - reference) * log_scale)
            references[lane] = reference
            for number in range(numbers):
                sums[lane, number] = sums[lane, number] * keep + added[lane, number] * take


@numba.njit(**COMPILE)
def _finish(job: Job, head: int, lanes: int, out: Address) -> None:
    """Divide by the totals and write bfloat16."""
    dim = job.head_dim
    sums = carray(pointer(out), (lanes, dim + LANES), np.float32)
    for lane in range(lanes):
        member, row = lane // job.rows, lane % job.rows
        at = job.out + (head * job.group + member) * job.out_head + row * job.out_row
        to = carray(pointer(at), (dim,), np.uint16)
        total = _F32(0)
        for number in range(LANES):
            total += sums[lane, dim + number]
        share = _F32(1) / total
        for d in range(dim):
            to[d] = rounded(sums[lane, d] * share)
