"""SDPA with a mask by true position: the slow twin of every other path."""

import torch
from torch.nn.functional import scaled_dot_product_attention

from models.attention.base import QueryRows


def masked_attention(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, rows: QueryRows, scale: float
) -> torch.Tensor:
    """`[1, heads, queries, head_dim]` by SDPA with a boolean mask `[queries, slots]`."""
    slots = torch.arange(key.shape[2], device=key.device)
    mask = slots[None, :] <= rows.positions[:, None]
    return scaled_dot_product_attention(query, key, value, attn_mask=mask, scale=scale, enable_gqa=True)


def whole_attention(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, rows: QueryRows, scale: float
) -> torch.Tensor:
    """A whole prompt from position 0: SDPA's own causal kernels, no mask. Same shapes."""
    causal = query.shape[2] > 1
    return scaled_dot_product_attention(query, key, value, is_causal=causal, scale=scale, enable_gqa=True)
