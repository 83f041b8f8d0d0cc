"""Position, applied once: the model's own rotary, in float32, as tables over positions."""

import torch
from torch import nn

GROWTH_POSITIONS = 1024


class RotaryTables:
    """Cosines and sines `[positions, head_dim]` float32 of a model's rotary module, attention scaling included once.

    Asking the model's own module keeps every supported kind (default, linear, llama3, yarn) right by construction.
    """

    def __init__(self, module: nn.Module, device: torch.device) -> None:
        self._module = module
        self._device = device
        self._cos = self._sin = torch.empty(0)
        self._positions = 0

    def upto(self, positions: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Tables over positions `0 … n-1` with n at least `positions`; computed once, grown in steps."""
        if positions > self._positions:
            grown = -(-positions // GROWTH_POSITIONS) * GROWTH_POSITIONS
            ids = torch.arange(grown, device=self._device)[None]
            like = torch.empty(0, dtype=torch.float32, device=self._device)
            with torch.no_grad():
                cos, sin = self._module(like, ids)
            self._cos, self._sin = cos[0].contiguous(), sin[0].contiguous()
            self._positions = grown  # last: another thread sees the number only with its tables
        return self._cos, self._sin


def rotate(keys: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Rotate float32 keys `[…, tokens, head_dim]` by tables `[tokens, head_dim]` of their positions."""
    half = keys.shape[-1] // 2
    turned = torch.cat((-keys[..., half:], keys[..., :half]), dim=-1)
    return keys * cos + turned * sin


def unrotate(keys: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """The inverse of `rotate`, also where the tables carry an attention scaling (then cos² + sin² is its square)."""
    half = keys.shape[-1] // 2
    turned = torch.cat((keys[..., half:], -keys[..., :half]), dim=-1)
    return (keys * cos + turned * sin) / (cos * cos + sin * sin)
