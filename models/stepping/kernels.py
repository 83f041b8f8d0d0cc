"""A step's layers as their matrix products, attention, and Triton kernels for all between them (triton_kernels.py)."""

import threading
from typing import Any

import torch
import triton
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from models.arena import Arena
from models.attention import TRITON_ATTENTION, QueryRows
from models.loading import LanguageModel
from models.stepping.triton_kernels import add_and_norm, gate, turn_and_write

_GATE_BLOCK = 1024
_launching = threading.Lock()  # compiling is not made for several threads, the interpreter even less
_add_and_norm: Any = add_and_norm
_turn_and_write: Any = turn_and_write
_gate: Any = gate


def serves(model: LanguageModel) -> bool:
    """Whether the kernels compute what this model computes; Triton works where attention by it was chosen."""
    backbone: Any = model.backbone
    same = all(norm.weight.dtype == model.dtype for norm in (backbone.norm, backbone.layers[0].input_layernorm))
    return model.attention.implementation == TRITON_ATTENTION and same and backbone.config.hidden_act == "silu"


def kernel_pass(
    model: LanguageModel, arena: Arena, slots: int, hidden: torch.Tensor, position: torch.Tensor
) -> torch.Tensor:
    """As `LayerPass` (base.py), for what `serves` says."""
    backbone: Any = model.backbone
    attend, rows = ALL_ATTENTION_FUNCTIONS[TRITON_ATTENTION], QueryRows(position, None)
    states, normed = hidden.clone(), torch.empty_like(hidden)
    added: torch.Tensor | None = None
    for index, layer in enumerate(backbone.layers):
        attention, mlp = layer.self_attn, layer.mlp
        _norm(states, added, layer.input_layernorm, normed)
        keys, values = arena.keys[index], arena.values[index]
        query = _turned(model, attention, normed, position, keys, values)
        slices = (keys[None, :, :slots], values[None, :, :slots])
        out, _ = attend(attention, query, *slices, None, scaling=attention.scaling, arena_rows=rows)
        _norm(states, attention.o_proj(out.reshape(1, -1)), layer.post_attention_layernorm, normed)
        added = mlp.down_proj(_gated(mlp.gate_proj(normed), mlp.up_proj(normed)))
    _norm(states, added, backbone.norm, normed)
    return normed


def _norm(states: torch.Tensor, added: torch.Tensor | None, norm: Any, out: torch.Tensor) -> None:
    width = states.shape[1]
    with _launching, torch.cuda.device_of(states):  # type: ignore[no-untyped-call]
        _add_and_norm[(1,)](
            states, states if added is None else added, norm.weight, out, float(norm.variance_epsilon),
            WIDTH=width, PAD=triton.next_power_of_2(width), ADD=added is not None, num_warps=8,
        )  # fmt: skip


def _turned(
    model: LanguageModel,
    attention: Any,
    normed: torch.Tensor,
    position: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
) -> torch.Tensor:
    """Queries `[1, heads, 1, head_dim]`; the row's key and value are in their slot afterwards."""
    query, key, value = attention.q_proj(normed), attention.k_proj(normed), attention.v_proj(normed)
    kv_heads, capacity, head_dim = keys.shape
    heads = query.shape[1] // head_dim
    out = torch.empty((1, heads, 1, head_dim), dtype=query.dtype, device=query.device)
    norms = getattr(attention, "q_norm", None), getattr(attention, "k_norm", None)
    weights = [query if norm is None else norm.weight for norm in norms]
    eps = 0.0 if norms[0] is None else float(norms[0].variance_epsilon)
    cos, sin = model.rotary.upto(capacity)
    with _launching, torch.cuda.device_of(query):  # type: ignore[no-untyped-call]
        _turn_and_write[(heads + 2 * kv_heads,)](
            query, key, value, *weights, eps, cos, sin, position, out, keys, values, capacity * head_dim,
            HEADS=heads, KV_HEADS=kv_heads, DIM=head_dim, PAD=triton.next_power_of_2(head_dim),
            NORM=norms[0] is not None, num_warps=1,
        )  # fmt: skip
    return out


def _gated(gates: torch.Tensor, ups: torch.Tensor) -> torch.Tensor:
    out, width = torch.empty_like(gates), gates.shape[1]
    with _launching, torch.cuda.device_of(gates):  # type: ignore[no-untyped-call]
        _gate[(triton.cdiv(width, _GATE_BLOCK),)](gates, ups, out, width, BLOCK=_GATE_BLOCK, num_warps=4)
    return out
