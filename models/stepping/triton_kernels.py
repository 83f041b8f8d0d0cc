# mypy: disallow-untyped-decorators=False
# ruff: noqa: N803 - constants of a compilation are written in capitals, as Triton does
"""The small work between a step's matrix products, one kernel each: transformers' modules take about thirty a layer.

Each rounds to the model's dtype where the modules round. One row; PAD is the next power of two of what it is for.
"""

import triton
import triton.language as tl


@triton.jit
def _normed(row: tl.tensor, weight: tl.tensor, eps: tl.tensor, width: tl.constexpr) -> tl.tensor:
    """RMSNorm (arXiv 1910.07467) of a row float32; `weight` in the model's dtype."""
    kind: tl.constexpr = weight.dtype
    scaled = row * (1.0 / tl.sqrt(tl.sum(row * row, 0) / width + eps))
    return (scaled.to(kind).to(tl.float32) * weight.to(tl.float32)).to(kind)


@triton.jit
def add_and_norm(
    states: tl.tensor, added: tl.tensor, weight: tl.tensor, out: tl.tensor, eps: tl.tensor,
    WIDTH: tl.constexpr, PAD: tl.constexpr, ADD: tl.constexpr,
) -> None:  # fmt: skip
    """Grid `[1]`: `states` plus `added` (with ADD) stays in `states`, its norm goes to `out`; all `[WIDTH]`."""
    column = tl.arange(0, PAD)
    inside = column < WIDTH
    row = tl.load(states + column, mask=inside, other=0.0)
    if ADD:
        row = (row.to(tl.float32) + tl.load(added + column, mask=inside, other=0.0).to(tl.float32)).to(row.dtype)
        tl.store(states + column, row, mask=inside)
    norm = _normed(row.to(tl.float32), tl.load(weight + column, mask=inside, other=0.0), eps, WIDTH)
    tl.store(out + column, norm, mask=inside)


@triton.jit
def turn_and_write(
    query: tl.tensor, key: tl.tensor, value: tl.tensor, query_norm: tl.tensor, key_norm: tl.tensor, eps: tl.tensor,
    cos: tl.tensor, sin: tl.tensor, position: tl.tensor, out: tl.tensor, keys: tl.tensor, values: tl.tensor,
    head_stride: tl.tensor,
    HEADS: tl.constexpr, KV_HEADS: tl.constexpr, DIM: tl.constexpr, PAD: tl.constexpr, NORM: tl.constexpr,
) -> None:  # fmt: skip
    """Grid `[HEADS + 2 * KV_HEADS]`: queries turned to `out` `[HEADS, DIM]`, keys turned and values to their slot.

    `keys` and `values` are one layer's, heads `head_stride` elements apart; `position` int64 `[1]` says the slot.
    `cos` and `sin` float32 `[positions, DIM]`. With NORM queries and keys are normed head by head first.
    """
    number = tl.program_id(0)
    column = tl.arange(0, PAD)
    inside = column < DIM
    slot = tl.load(position)
    if number >= HEADS + KV_HEADS:
        head = number - HEADS - KV_HEADS
        row = tl.load(value + head * DIM + column, mask=inside, other=0.0)
        tl.store(values + head.to(tl.int64) * head_stride + slot * DIM + column, row, mask=inside)
    else:
        other = tl.where(column < DIM // 2, column + DIM // 2, column - DIM // 2)
        is_query = number < HEADS
        head = tl.where(is_query, number, number - HEADS)
        # Both are read, and all but one masked off: a pointer cannot be chosen by a condition.
        query_in, key_in = inside & is_query, inside & (number >= HEADS)
        row = tl.load(query + head * DIM + column, mask=query_in, other=0.0)
        row += tl.load(key + head * DIM + column, mask=key_in, other=0.0)
        far = tl.load(query + head * DIM + other, mask=query_in, other=0.0)
        far += tl.load(key + head * DIM + other, mask=key_in, other=0.0)
        kind: tl.constexpr = row.dtype
        if NORM:
            weight = tl.load(query_norm + column, mask=query_in, other=0.0)
            weight += tl.load(key_norm + column, mask=key_in, other=0.0)
            far_weight = tl.load(query_norm + other, mask=query_in, other=0.0)
            far_weight += tl.load(key_norm + other, mask=key_in, other=0.0)
            row = _normed(row.to(tl.float32), weight, eps, DIM)
            far = _normed(far.to(tl.float32), far_weight, eps, DIM)
        far = tl.where(column < DIM // 2, -far, far)
        across = tl.load(cos + slot * DIM + column, mask=inside, other=0.0).to(kind).to(tl.float32)
        up = tl.load(sin + slot * DIM + column, mask=inside, other=0.0).to(kind).to(tl.float32)
        turned = (row.to(tl.float32) * across).to(kind).to(tl.float32)
        turned = (turned + (far.to(tl.float32) * up).to(kind).to(tl.float32)).to(kind)
        tl.store(out + head * DIM + column, turned, mask=query_in)
        tl.store(keys + head.to(tl.int64) * head_stride + slot * DIM + column, turned, mask=key_in)


@triton.jit
def gate(
    gates: tl.tensor, ups: tl.tensor, out: tl.tensor, width: tl.tensor, BLOCK: tl.constexpr
) -> None:  # fmt: skip
    """Grid `[blocks]`: SwiGLU (arXiv 2002.05202), `silu(gates) * ups`, all `[width]`."""
    column = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = column < width
    found = tl.load(gates + column, mask=inside, other=0.0)
    kind: tl.constexpr = found.dtype
    wide = found.to(tl.float32)
    opened = (wide / (1.0 + tl.exp(-wide))).to(kind).to(tl.float32)
    ready = (opened * tl.load(ups + column, mask=inside, other=0.0).to(tl.float32)).to(kind)
    tl.store(out + column, ready, mask=inside)
