"""Attention by batched matmuls over the KV heads, in blocks of rows: the path of CPUs without compiled loops."""

import math

import torch

from models.attention.base import QueryRows

# Rows of ascending positions that are computed together. A block reads the slots below its own last position only:
# small blocks read less, large ones multiply faster.
GROUPED_QUERY_LIMIT = 64


def blocked_attention(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, rows: QueryRows, scale: float
) -> torch.Tensor:
    """`[1, heads, queries, head_dim]`: blocks of rows, each over the slots below its own last position.

    No mask is made for the whole; a block's scores are masked between its first and its last position alone.
    """
    queries = query.shape[2]
    if queries <= GROUPED_QUERY_LIMIT:
        return grouped_attention(query, key, value, rows, scale)
    out = torch.empty_like(query)
    for begin in range(0, queries, GROUPED_QUERY_LIMIT):
        end = min(begin + GROUPED_QUERY_LIMIT, queries)
        positions = rows.positions[begin:end]
        slots = min(int(positions[-1]) + 1, key.shape[2])
        block = QueryRows(positions, None if rows.first is None else rows.first + begin)
        part = grouped_attention(query[:, :, begin:end], key[:, :, :slots], value[:, :, :slots], block, scale)
        out[:, :, begin:end] = part
    return out


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
