"""A second encoder for questions: the same weights rounded to bfloat16 and packed, so that a question waits less.

A short question is bound by reading the weights; half the bytes take 60% of the time (docs/benchmarks.md). Documents
are embedded in float32 as before, so that stored vectors do not depend on it; a question's vector differs from its
float32 twin by about a part in 100,000 (cosine).
"""

import copy
from typing import Any

import torch
from torch import nn

from models.packing import PackedLinear


class RoundedLinear(nn.Module):
    """Float32 in and out, the product in bfloat16 with packed weights."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        rounded = nn.Linear(linear.in_features, linear.out_features, linear.bias is not None, dtype=torch.bfloat16)
        rounded.load_state_dict(linear.state_dict())
        self._packed = PackedLinear(rounded.requires_grad_(False))

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        product: torch.Tensor = self._packed(rows.to(torch.bfloat16)).to(torch.float32)
        return product


def packed_twin(model: Any) -> Any:
    """A copy of an encoder whose linear layers are rounded and packed; all else is shared in value, not in memory."""
    twin = copy.deepcopy(model)
    for module in list(twin.modules()):
        for name, child in list(module.named_children()):
            if type(child) is nn.Linear:
                setattr(module, name, RoundedLinear(child))
    return twin
