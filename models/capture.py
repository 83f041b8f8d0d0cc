"""Taking keys before rotary and values out of a forward pass."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from storage.geometry import Geometry


@dataclass
class CapturedKV:
    """One tensor a layer, `[1, tokens, kv_heads * head_dim]`, or `[1, tokens, kv_heads, head_dim]` after a key norm."""

    keys: list[torch.Tensor] = field(default_factory=list)
    values: list[torch.Tensor] = field(default_factory=list)

    def stacked(self, geometry: Geometry) -> tuple[torch.Tensor, torch.Tensor]:
        """Keys before rotary and values, `[layers, kv_heads, tokens, head_dim]`."""
        return _stack(self.keys, geometry), _stack(self.values, geometry)


@contextmanager
def capture_kv(layers: nn.ModuleList) -> Iterator[CapturedKV]:
    """Collect what each layer's key (after bias and key norm) and value projections put out, in layer order."""
    captured = CapturedKV()
    handles = []
    try:
        for layer in layers:
            attention: Any = layer.self_attn
            last_key_module = getattr(attention, "k_norm", None) or attention.k_proj
            handles.append(last_key_module.register_forward_hook(_keep(captured.keys)))
            handles.append(attention.v_proj.register_forward_hook(_keep(captured.values)))
        yield captured
    finally:
        for handle in handles:
            handle.remove()


@contextmanager
def capture_queries(layers: nn.ModuleList, heads: int, head_dim: int) -> Iterator[list[torch.Tensor]]:
    """Collect each layer's queries before rotary (after bias and query norm), `[heads, rows, head_dim]`, in order."""
    captured: list[torch.Tensor] = []

    def hook(_module: nn.Module, _inputs: Any, output: torch.Tensor) -> None:
        captured.append(output.reshape(output.shape[1], heads, head_dim).transpose(0, 1))

    handles = []
    try:
        for layer in layers:
            attention: Any = layer.self_attn
            last_query_module = getattr(attention, "q_norm", None) or attention.q_proj
            handles.append(last_query_module.register_forward_hook(hook))
        yield captured
    finally:
        for handle in handles:
            handle.remove()


def _keep(into: list[torch.Tensor]) -> Callable[[nn.Module, Any, torch.Tensor], None]:
    def hook(_module: nn.Module, _inputs: Any, output: torch.Tensor) -> None:
        into.append(output)

    return hook


def _stack(outputs: list[torch.Tensor], geometry: Geometry) -> torch.Tensor:
    shaped = [output.reshape(output.shape[1], geometry.kv_heads, geometry.head_dim) for output in outputs]
    return torch.stack(shaped).transpose(1, 2).contiguous()
