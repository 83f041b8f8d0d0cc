"""A decoder's layers as four matrix products, attention, and compiled loops between them; rows over the arena.

Twin: transformers' own layers (models/forward.py takes those where anything is hooked to a projection, so that what is
captured is seen). Same steps in the same order, each rounded where the twin rounds.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn
from transformers.cache_utils import Cache
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from models.arena import Arena
from models.attention import BatchRows, QueryRows
from models.fused.head import HeadRow
from models.fused.loops import Array, add_and_norm, gate_rows, turn_rows
from models.packing import JointPart

_INTEGERS = {torch.bfloat16: torch.int16, torch.float32: torch.int32}
_NOTHING = np.zeros(0, np.float32)
Linear = Callable[[torch.Tensor], torch.Tensor]


@dataclass(frozen=True)
class _Layer:
    """One layer's products (over `[rows, inputs]`) and norm weights (float32; those of the heads may be empty)."""

    qkv: Linear
    out: Linear
    gate_up: Linear
    down: Linear
    norm: Array
    later_norm: Array
    query_norm: Array
    key_norm: Array
    eps: float
    scaling: float
    attention: Any
    hookable: tuple[nn.Module, ...]


class FusedLayers:
    """Runs the layers of a float32 or bfloat16 backbone on a CPU whose projections are joint (models/packing.py)."""

    def __init__(self, backbone: Any, head: HeadRow | None = None) -> None:
        """`head` is the walk of the product after the last layer, for one row; None: that of the module."""
        self.head = head
        self._layers = [_read(layer) for layer in backbone.layers]
        self._dtype: torch.dtype = backbone.norm.weight.dtype
        config = backbone.config
        self._heads, self._kv_heads = int(config.num_attention_heads), int(config.num_key_value_heads)
        self._implementation = config._attn_implementation

    def hooked(self, layers: range) -> bool:
        """Whether anyone listens to what a projection or a head norm of these layers puts out."""
        return any(module._forward_hooks for index in layers for module in self._layers[index].hookable)

    def run(
        self,
        hidden: torch.Tensor,
        rows: QueryRows | BatchRows,
        turning: tuple[torch.Tensor, torch.Tensor],
        layers: range,
        cache: Cache,
        arena: Arena | None,
        end: int,
    ) -> torch.Tensor:
        """`[queries, hidden]` after these layers; `turning`: cosines and sines `[queries, head_dim]` of the rows.

        Keys and values go to the rows' positions of `arena`, slots below `end` are read; without an arena `cache` is
        asked to do both. Raises ValueError where a position is no slot below `end`, or `end` is beyond the arena.
        """
        count, head_dim = turning[0].shape
        if arena is not None:
            keys, values, positions = arena.keys, arena.values, rows.positions.numpy()
        else:
            keys = torch.empty((1, self._kv_heads, count, head_dim), dtype=self._dtype)
            values, positions, end = torch.empty_like(keys), np.arange(count), count
        # The loops check nothing: a row outside would write over other memory.
        if not 0 <= positions.min() <= positions.max() < end <= keys.shape[2] or not len(positions) == count == len(
            hidden
        ):
            raise ValueError(f"{count} rows up to {positions.max()}, end {end}: the arena has {keys.shape[2]} slots")
        half, attend = self._dtype is torch.bfloat16, ALL_ATTENTION_FUNCTIONS[self._implementation]
        states, normed = hidden.clone(), torch.empty_like(hidden)
        query = torch.empty((1, self._heads, count, head_dim), dtype=self._dtype)
        x, into, q = _integers(states), _integers(normed), _integers(query[0])
        k, v, added = _integers(keys), _integers(values), x[:0]
        c, s = (table.to(torch.float32).numpy() for table in turning)
        for index in layers:
            layer = self._layers[index]
            add_and_norm(x, added, layer.norm, layer.eps, half, into)
            qkv = _integers(layer.qkv(normed))
            norms = (layer.query_norm, layer.key_norm, layer.eps)
            at = index if arena is not None else 0
            turn_rows(qkv, c, s, *norms, positions, half, q, k[at], v[at])
            slots = (keys[at : at + 1, :, :end], values[at : at + 1, :, :end])
            if arena is None:
                slots = cache.update(*slots, index)
            out, _ = attend(layer.attention, query, *slots, None, scaling=layer.scaling, arena_rows=rows)
            add_and_norm(x, _integers(layer.out(out.reshape(count, -1))), layer.later_norm, layer.eps, half, into)
            gate_up = layer.gate_up(normed)
            product = torch.empty((count, gate_up.shape[1] // 2), dtype=self._dtype)
            gate_rows(_integers(gate_up), half, _integers(product))
            added = _integers(layer.down(product))
        add_and_norm(x, added, _NOTHING, 0.0, half, into)
        return states


def can_fuse(backbone: Any) -> bool:
    """Whether the loops compute what this backbone computes."""
    weight, parts = backbone.norm.weight, backbone.layers[0].self_attn.q_proj
    known = weight.device.type == "cpu" and weight.dtype in _INTEGERS and backbone.config.hidden_act == "silu"
    return known and isinstance(parts, JointPart)


def _read(layer: Any) -> _Layer:
    attention, mlp = layer.self_attn, layer.mlp
    heads = [norm for norm in (getattr(attention, "q_norm", None), getattr(attention, "k_norm", None)) if norm]
    head_norms = [_weight(norm) for norm in heads] or [_NOTHING, _NOTHING]
    return _Layer(
        qkv=attention.q_proj.joint,
        out=attention.o_proj,
        gate_up=mlp.gate_proj.joint,
        down=mlp.down_proj,
        norm=_weight(layer.input_layernorm),
        later_norm=_weight(layer.post_attention_layernorm),
        query_norm=head_norms[0],
        key_norm=head_norms[1],
        eps=float(layer.input_layernorm.variance_epsilon),
        scaling=float(attention.scaling),
        attention=attention,
        hookable=(attention.q_proj, attention.k_proj, attention.v_proj, *heads),
    )


def _weight(norm: Any) -> Array:
    weight: Array = norm.weight.detach().to(torch.float32).numpy()
    return weight


def _integers(tensor: torch.Tensor) -> Array:
    """The same memory; numpy has no bfloat16."""
    array: Array = tensor.view(_INTEGERS[tensor.dtype]).numpy()
    return array
