"""A loaded language model, as the rest of this floor sees it."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from models.attention import AttentionChoice
from models.fused import FusedLayers
from models.packing import LinearChoice
from models.rotary import RotaryTables
from storage.geometry import Geometry


@dataclass(frozen=True)
class LanguageModel:
    """Weights, tokenizer and shape. `identity` is the digest of all that decides the numbers (see fingerprint.py)."""

    name: str
    backbone: nn.Module
    lm_head: nn.Module
    tokenizer: Any
    geometry: Geometry
    rotary: RotaryTables
    window: int
    dtype: torch.dtype
    device: torch.device
    weights: str
    stop_ids: frozenset[int]
    identity: str
    weights_bytes: int
    linears: LinearChoice
    attention: AttentionChoice
    fused: FusedLayers | None = None

    @property
    def layers(self) -> nn.ModuleList:
        layers = self.backbone.layers
        if not isinstance(layers, nn.ModuleList):
            raise TypeError(f"{self.name} keeps its layers in a {type(layers).__name__}")
        return layers

    @property
    def heads(self) -> int:
        """Query heads of each layer."""
        config: Any = self.backbone.config
        return int(config.num_attention_heads)

    def wait(self) -> None:
        """Wait for work that was handed to a GPU; times mean nothing before."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
