"""Queries, arenas and rows for the tests of attention."""

import numpy as np
import torch

from models.attention import QueryRows, masked_attention
from models.forward import scattered_rows

# heads, kv_heads: groups of 1, 3, 4, 8.
GROUPS = [(2, 2), (9, 3), (8, 2), (8, 1)]
Inputs = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


def inputs(
    heads: int, kv_heads: int, queries: int, slots: int, head_dim: int, dtype: torch.dtype, device: str = "cpu"
) -> Inputs:
    """Query, key and value as a forward pass has them: the query turned, the arena longer than its slots.

    What lies behind the slots is no number: who reads it gives none.
    """
    generator = torch.Generator().manual_seed(1000 * queries + slots)
    query = torch.randn(1, queries, heads, head_dim, generator=generator).mul(2).to(dtype).transpose(1, 2)
    arena = torch.randn(2, kv_heads, slots + 9, head_dim, generator=generator).to(dtype)
    arena[:, :, slots:] = float("nan")
    query, arena = query.to(device), arena.to(device)
    return query, arena[0, None, :, :slots], arena[1, None, :, :slots]


def random_rows(queries: int, slots: int, tail: int = 0, device: str = "cpu") -> QueryRows:
    """Ascending positions drawn at random, the last `tail` of them the last slots."""
    drawn = np.random.default_rng(slots).choice(slots - tail, queries - tail, replace=False)
    positions = np.concatenate([np.sort(drawn), np.arange(slots - tail, slots)])
    return scattered_rows(positions, torch.device(device))


def exact(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, rows: QueryRows, scale: float) -> torch.Tensor:
    """The slow twin in float64, of the same numbers."""
    return masked_attention(query.double(), key.double(), value.double(), rows, scale).to(torch.float32)
