"""CacheBlend (EuroSys 2025, §4.3): the first layers in full, then the tokens whose keys and values deviate most there.

Layers 0 and 1 are computed for every token and keep their fresh KV; the deviation is that of layer 1, keys and values,
squared and summed over heads and dimensions. Unlike the public code the whole tail is computed and rows are masked by
their true positions (research: its suffix of one token and its bottom-right mask are bugs).
"""

import numpy as np
import torch

from models.forward import contiguous_rows, embed_rows, run_layers
from models.selection.base import Selected, Selector, Stitched, highest

CHECK_LAYER = 1


class Deviation(Selector):
    def choose(self, stitched: Stitched, prepared: torch.Tensor | None) -> Selected:
        """Raises nothing of its own; a model of two layers or fewer is computed in full by then."""
        if stitched.budget_tokens == 0:
            return Selected(np.empty(0, dtype=np.int64))
        model, arena, first, end = stitched.model, stitched.arena, stitched.first, stitched.end
        layers = min(CHECK_LAYER + 1, model.geometry.layers)
        check = layers - 1
        before = [side[check, :, first:end].to(torch.float32, copy=True) for side in (arena.keys, arena.values)]
        tokens = stitched.prompt.tokens
        rows = contiguous_rows(first, tokens - first, model.device)
        hidden = embed_rows(model, stitched.prompt.ids()[first:])
        hidden = run_layers(model, arena, hidden, rows, tokens, range(layers))
        after = (arena.keys[check, :, first:end], arena.values[check, :, first:end])
        deviation = sum(
            (new.to(torch.float32) - old).square().sum(dim=(0, 2)) for new, old in zip(after, before, strict=True)
        )
        if not isinstance(deviation, torch.Tensor):
            raise TypeError("a model has keys and values")
        positions = highest(deviation.cpu().numpy(), stitched)
        wanted = np.concatenate([positions, np.arange(end, tokens)]) - first
        return Selected(positions, layers, hidden[torch.as_tensor(wanted, device=model.device)])
