"""A step's layers through transformers' own modules: any device, the slow twin of kernels.py."""

import torch

from models.arena import Arena, ArenaCache
from models.attention import QueryRows
from models.forward import final_norm, run_cache
from models.loading import LanguageModel


def module_pass(
    model: LanguageModel, arena: Arena, slots: int, hidden: torch.Tensor, position: torch.Tensor
) -> torch.Tensor:
    """As `LayerPass` (base.py)."""
    rows = QueryRows(position, None)
    cache = ArenaCache(arena, rows, slots)
    return final_norm(model, run_cache(model, cache, hidden, rows, slots, range(model.geometry.layers)))
