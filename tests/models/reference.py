"""What the exactness tests compare with: transformers' own eager attention, nothing of ours."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import AutoModelForCausalLM, DynamicCache

Layers = list[tuple[torch.Tensor, torch.Tensor]]


class Reference:
    """The same weights under transformers' eager attention."""

    def __init__(self, folder: Path) -> None:
        loader: Any = AutoModelForCausalLM
        self.model = loader.from_pretrained(folder, attn_implementation="eager", dtype=torch.float32)
        self.model.eval()

    @torch.inference_mode()
    def logits(self, ids: np.ndarray, mask: torch.Tensor | None = None) -> torch.Tensor:
        """Last-row logits of one pass at positions 0…; `mask` boolean `[tokens, tokens]`, True where seen."""
        tokens = torch.as_tensor(ids, dtype=torch.int64)[None]
        bias = None
        if mask is not None:
            bias = torch.zeros(mask.shape).masked_fill(~mask, torch.finfo(torch.float32).min)[None, None]
        positions = torch.arange(tokens.shape[1])[None]
        out = self.model(input_ids=tokens, attention_mask=bias, position_ids=positions, use_cache=False)
        last: torch.Tensor = out.logits[0, -1]
        return last

    @torch.inference_mode()
    def kv(self, ids: np.ndarray, first: int = 0) -> Layers:
        """Rotated keys and values `[1, kv_heads, tokens, head_dim]` a layer, computed at positions first…"""
        cache: Any = DynamicCache()
        tokens = torch.as_tensor(ids, dtype=torch.int64)[None]
        positions = torch.arange(first, first + tokens.shape[1])[None]
        self.model(input_ids=tokens, position_ids=positions, past_key_values=cache, use_cache=True)
        return [(layer.keys, layer.values) for layer in cache.layers]

    @torch.inference_mode()
    def tail_logits(self, past: Layers, tail: np.ndarray) -> torch.Tensor:
        """Last-row logits of the tail over a composed past, at the positions after it."""
        cache = DynamicCache()
        for index, (keys, values) in enumerate(past):
            cache.update(keys, values, index)
        first = past[0][0].shape[2]
        tokens = torch.as_tensor(tail, dtype=torch.int64)[None]
        positions = torch.arange(first, first + tokens.shape[1])[None]
        out = self.model(input_ids=tokens, position_ids=positions, past_key_values=cache, use_cache=True)
        last: torch.Tensor = out.logits[0, -1]
        return last

    def moved(self, keys: torch.Tensor, old_first: int, new_first: int) -> torch.Tensor:
        """Rotated keys of one layer moved from one run of positions to another, through the model's own rotary."""
        tokens = keys.shape[2]
        rotary = self.model.model.rotary_emb

        def tables(first: int) -> tuple[torch.Tensor, torch.Tensor]:
            cos, sin = rotary(keys, torch.arange(first, first + tokens)[None])
            return cos, sin

        half = keys.shape[-1] // 2
        cos, sin = tables(old_first)
        back = (keys * cos + torch.cat((keys[..., half:], -keys[..., :half]), -1) * sin) / (cos**2 + sin**2)
        cos, sin = tables(new_first)
        moved: torch.Tensor = back * cos + torch.cat((-back[..., half:], back[..., :half]), -1) * sin
        return moved


def block_diagonal_mask(lengths: Sequence[int], tail: int) -> torch.Tensor:
    """Each part causal within itself; the tail sees everything before it."""
    total = sum(lengths) + tail
    mask = torch.zeros(total, total, dtype=torch.bool)
    start = 0
    for length in lengths:
        mask[start : start + length, start : start + length] = torch.ones(length, length).tril().bool()
        start += length
    mask[start:] = torch.ones(tail, total).tril(start).bool()
    return mask
