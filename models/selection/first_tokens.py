"""EPIC's LegoLink (ICML 2025, §4): the first tokens of each chunk, which are where a chunk read alone is most wrong."""

import numpy as np
import torch

from models.selection.base import Selected, Selector, Stitched, highest


class FirstTokens(Selector):
    """The budget spread evenly: as many of each chunk's first tokens, short chunks whole."""

    def choose(self, stitched: Stitched, prepared: torch.Tensor | None) -> Selected:
        ranks = np.concatenate([-np.arange(len(chunk), dtype=np.float64) for chunk in stitched.prompt.chunks])
        return Selected(highest(ranks, stitched))


def first_tokens_mask(stitched: Stitched, each: int) -> np.ndarray:
    """Boolean `[chunk tokens]`: the first `each` tokens of every chunk."""
    return np.concatenate([np.arange(len(chunk)) < each for chunk in stitched.prompt.chunks])
