"""Attention over the arena, registered with transformers under the name `arena`.

Three paths, chosen by shape: a whole prompt from position 0 (SDPA, causal), a few queries at the end of a long past
(grouped matmul, on a CPU about half the time of SDPA there: docs/benchmarks.md), and queries at given
positions (SDPA with a mask by true position). Rows are masked by where tokens stand, never by their order.
"""

import math
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface

from models.errors import DeviceUnavailable

ARENA_ATTENTION = "arena"
PLAIN_ATTENTION = "arena_plain"
# Above this many query rows SDPA's blocked kernel wins over one big matmul on the CPU.
GROUPED_QUERY_LIMIT = 320


@dataclass(frozen=True)
class AttentionChoice:
    """The name registered with transformers, the name for people, and why."""

    implementation: str
    name: str
    reason: str


@dataclass(frozen=True)
class QueryRows:
    """Where the queries of one forward pass stand: `positions` int64 `[queries]`, ascending.

    `first` is the first position when they are contiguous, else None.
    """

    positions: torch.Tensor
    first: int | None


def arena_attention(
    module: nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    **options: object,
) -> tuple[torch.Tensor, None]:
    """Query `[1, heads, queries, head_dim]` over key and value `[1, kv_heads, slots, head_dim]`.

    Slot index is position. Returns `[1, queries, heads, head_dim]`. The positions come as `arena_rows` in the
    forward's keyword arguments; `attention_mask` is not used, a mask by position takes its place.
    """
    return _attend(query, key, value, scaling, options.get("arena_rows"), query.shape[2] <= GROUPED_QUERY_LIMIT), None


def plain_arena_attention(
    module: nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    **options: object,
) -> tuple[torch.Tensor, None]:
    """The slow twin of `arena_attention`: SDPA alone. On a GPU, where SDPA has kernels of its own, the only one."""
    return _attend(query, key, value, scaling, options.get("arena_rows"), grouped=False), None


def _attend(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, scaling: float | None, rows: object, grouped: bool
) -> torch.Tensor:
    if not isinstance(rows, QueryRows):
        raise TypeError("arena attention needs arena_rows: run the model through models.forward")
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    queries, slots = query.shape[2], key.shape[2]
    if rows.first == 0 and queries == slots:
        out = scaled_dot_product_attention(query, key, value, is_causal=queries > 1, scale=scale, enable_gqa=True)
    elif grouped:
        out = grouped_attention(query, key, value, rows, scale)
    else:
        out = masked_attention(query, key, value, rows, scale)
    return out.transpose(1, 2)


def masked_attention(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, rows: QueryRows, scale: float
) -> torch.Tensor:
    """SDPA with a boolean mask by true position; the slow twin of `grouped_attention`. Same shapes as there."""
    slots = torch.arange(key.shape[2], device=key.device)
    mask = slots[None, :] <= rows.positions[:, None]
    return scaled_dot_product_attention(query, key, value, attn_mask=mask, scale=scale, enable_gqa=True)


def grouped_attention(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, rows: QueryRows, scale: float
) -> torch.Tensor:
    """`[1, heads, queries, head_dim]` by two batched matmuls over the KV heads, softmax in float32.

    The heads that share a KV head are folded into the query axis, so keys and values are read once and never
    repeated. Only the slots after the first query need a mask.
    """
    _, heads, queries, head_dim = query.shape
    kv_heads, slots = key.shape[1], key.shape[2]
    group = heads // kv_heads
    folded = query[0].reshape(kv_heads, group * queries, head_dim)
    scores = _scaled_scores(folded, key[0].transpose(1, 2), scale)
    first = int(rows.positions[0]) if rows.first is None else rows.first
    if first + 1 < slots:
        tail = torch.arange(first + 1, slots, device=key.device)
        hidden = tail[None, :] > rows.positions[:, None]
        scores.view(kv_heads, group, queries, slots)[..., first + 1 :].masked_fill_(hidden, float("-inf"))
    weights = torch.softmax(scores, dim=-1).to(value.dtype)
    return torch.matmul(weights, value[0]).view(1, heads, queries, head_dim)


def _scaled_scores(query: torch.Tensor, key: torch.Tensor, scale: float) -> torch.Tensor:
    """Scores ready for softmax. A scale that is a power of two (head_dim 16, 64, 256) is exact in any dtype.

    Then the scores stay in the model's dtype, whose softmax computes in float32 anyway: widening them first costs a
    fresh array as large as all scores, twice what the softmax itself takes.
    """
    if math.frexp(scale)[0] == 0.5:
        return torch.matmul(query * scale, key)
    return torch.matmul(query, key).to(torch.float32).mul_(scale)


def choose_attention(asked: str, device: torch.device) -> AttentionChoice:
    """`auto` takes grouped matmuls for few rows on a CPU; `plain` always SDPA. Raises DeviceUnavailable."""
    if asked == "plain":
        return AttentionChoice(PLAIN_ATTENTION, "plain", "asked for")
    if asked != "auto":
        raise DeviceUnavailable(f"attention {asked!r} is unknown: choose auto or plain")
    if device.type != "cpu":
        return AttentionChoice(PLAIN_ATTENTION, "plain", "SDPA has kernels of its own on a GPU")
    return AttentionChoice(ARENA_ATTENTION, "grouped", f"at most {GROUPED_QUERY_LIMIT} rows on a CPU")


AttentionInterface.register(ARENA_ATTENTION, arena_attention)
AttentionInterface.register(PLAIN_ATTENTION, plain_arena_attention)
