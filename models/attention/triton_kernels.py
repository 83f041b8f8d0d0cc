# mypy: disallow-untyped-decorators=False
# ruff: noqa: N803 - constants of a compilation are written in capitals, as Triton does
"""The Triton kernels of attention over the arena: queries at given positions, no mask (FlashAttention-2's loop,
arxiv 2307.08691, section 3.1; split over slots as in Flash-Decoding where there are few rows).

The rows of all heads of a KV head's group are folded into one axis: folded row `row * GROUP + member`. A program serves
`BLOCK` folded rows, ascending like their positions, and walks over slots up to the last one's position only; slots are
compared with positions from the block's first position on.
"""

import triton
import triton.language as tl


@triton.jit
def _walk(
    query: tl.tensor, keys: tl.tensor, values: tl.tensor, key_row: tl.tensor, value_row: tl.tensor, stands: tl.tensor,
    begin: tl.tensor, end: tl.tensor, most: tl.tensor, total: tl.tensor, sums: tl.tensor, log_scale: tl.tensor,
    DIM: tl.constexpr, PAD: tl.constexpr, TILE: tl.constexpr, MASKED: tl.constexpr, PRECISION: tl.constexpr,
) -> tl.tensor:  # fmt: skip
    """Slots `[begin, end)`; masked, those behind `end` or a row's position are hidden. Begin is a multiple of TILE."""
    column = tl.arange(0, PAD)
    for first in range(begin, end, TILE):
        slot = first + tl.arange(0, TILE)
        at = keys + slot[None, :].to(tl.int64) * key_row + column[:, None]
        if MASKED:
            key = tl.load(at, mask=(slot[None, :] < end) & (column[:, None] < DIM), other=0.0)
        elif PAD != DIM:
            key = tl.load(at, mask=column[:, None] < DIM, other=0.0)
        else:
            key = tl.load(at)
        scores = tl.dot(query, key, input_precision=PRECISION) * log_scale
        if MASKED:
            scores = tl.where((slot[None, :] <= stands[:, None]) & (slot[None, :] < end), scores, -float("inf"))
        higher = tl.maximum(most, tl.max(scores, 1))
        # Masked, a row may have seen no slot yet: infinity less infinity is no number.
        reference = tl.where(higher == -float("inf"), 0.0, higher) if MASKED else higher
        weights = tl.exp2(scores - reference[:, None])
        keep = tl.exp2(most - reference)
        total = total * keep + tl.sum(weights, 1)
        at = values + slot[:, None].to(tl.int64) * value_row + column[None, :]
        if MASKED:
            value = tl.load(at, mask=(slot[:, None] < end) & (column[None, :] < DIM), other=0.0)
        elif PAD != DIM:
            value = tl.load(at, mask=column[None, :] < DIM, other=0.0)
        else:
            value = tl.load(at)
        sums = tl.dot(weights.to(value.dtype), value, sums * keep[:, None], input_precision=PRECISION)
        most = higher
    return most, total, sums


@triton.jit
def attend(
    query: tl.tensor, keys: tl.tensor, values: tl.tensor, positions: tl.tensor, out: tl.tensor, sides: tl.tensor,
    folded_rows: tl.tensor, slots: tl.tensor, log_scale: tl.tensor, query_head: tl.tensor, query_row: tl.tensor,
    key_head: tl.tensor, key_row: tl.tensor, value_head: tl.tensor, value_row: tl.tensor, out_split: tl.tensor,
    out_head: tl.tensor, out_row: tl.tensor, heads: tl.tensor,
    GROUP: tl.constexpr, DIM: tl.constexpr, PAD: tl.constexpr, BLOCK: tl.constexpr, TILE: tl.constexpr,
    SPLITS: tl.constexpr, PRECISION: tl.constexpr,
) -> None:  # fmt: skip
    """Grid `[blocks of folded rows, kv_heads, SPLITS]`; distances in elements; `positions` int64 or int32.

    One split writes the result to `out`. Several write float32 results of their own, `out_split` apart, and to `sides`
    `[SPLITS, heads, rows]` float32 the logarithm (base 2) of their totals, which `join` puts together.
    """
    block, kv_head, split = tl.num_programs(0) - 1 - tl.program_id(0), tl.program_id(1), tl.program_id(2)
    folded = block * BLOCK + tl.arange(0, BLOCK)
    inside = folded < folded_rows
    row = folded // GROUP
    head = kv_head * GROUP + folded % GROUP
    stands = tl.load(positions + row, mask=inside, other=-1).to(tl.int32)
    lowest = tl.load(positions + block * BLOCK // GROUP).to(tl.int32)
    highest = tl.load(positions + (tl.minimum((block + 1) * BLOCK, folded_rows) - 1) // GROUP).to(tl.int32)
    end = tl.minimum(highest + 1, slots)
    tiles = (end + TILE - 1) // TILE
    begin = tiles * split // SPLITS * TILE
    end = tl.minimum(end, tiles * (split + 1) // SPLITS * TILE)
    open_end = tl.maximum(begin, tl.minimum(end, (lowest + 1) // TILE * TILE))  # every row sees whole tiles up to here
    column = tl.arange(0, PAD)
    shown = inside[:, None] & (column[None, :] < DIM)
    at = query + head[:, None].to(tl.int64) * query_head + row[:, None].to(tl.int64) * query_row + column[None, :]
    rows = tl.load(at, mask=shown, other=0.0)
    keys += kv_head.to(tl.int64) * key_head
    values += kv_head.to(tl.int64) * value_head
    most = tl.full([BLOCK], -float("inf"), tl.float32)
    total = tl.zeros([BLOCK], tl.float32)
    sums = tl.zeros([BLOCK, PAD], tl.float32)
    most, total, sums = _walk(
        rows, keys, values, key_row, value_row, stands, begin, open_end, most, total, sums, log_scale,
        DIM, PAD, TILE, False, PRECISION,
    )  # fmt: skip
    most, total, sums = _walk(
        rows, keys, values, key_row, value_row, stands, open_end, end, most, total, sums, log_scale,
        DIM, PAD, TILE, True, PRECISION,
    )  # fmt: skip
    sums = sums / tl.where(total == 0.0, 1.0, total)[:, None]
    at = out + split.to(tl.int64) * out_split + head[:, None].to(tl.int64) * out_head
    tl.store(at + row[:, None].to(tl.int64) * out_row + column[None, :], sums.to(out.dtype.element_ty), mask=shown)
    if SPLITS > 1:
        side = tl.where(total == 0.0, -float("inf"), most + tl.log2(total))
        tl.store(sides + (split * heads + head) * (folded_rows // GROUP) + row, side, mask=inside)


@triton.jit
def join(
    parts: tl.tensor, sides: tl.tensor, out: tl.tensor, rows: tl.tensor, heads: tl.tensor,
    DIM: tl.constexpr, PAD: tl.constexpr, SPLITS: tl.constexpr, PADDED_SPLITS: tl.constexpr,
) -> None:  # fmt: skip
    """Grid `[rows, heads]`: the splits' results `[SPLITS, rows, heads, DIM]` float32 as one, in `out`."""
    row, head = tl.program_id(0), tl.program_id(1)
    split, column = tl.arange(0, PADDED_SPLITS), tl.arange(0, PAD)
    known = split < SPLITS
    side = tl.load(sides + (split * heads + head) * rows + row, mask=known, other=-float("inf"))
    share = tl.exp2(side - tl.max(side, 0))
    share = share / tl.sum(share, 0)
    at = ((split[:, None] * rows + row) * heads + head).to(tl.int64) * DIM + column[None, :]
    part = tl.load(parts + at, mask=known[:, None] & (column[None, :] < DIM), other=0.0)
    joined = tl.sum(part * share[:, None], 0)
    to = out + (row * heads + head).to(tl.int64) * DIM + column
    tl.store(to, joined.to(out.dtype.element_ty), mask=column < DIM)
