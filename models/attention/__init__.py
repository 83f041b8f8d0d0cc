"""Attention over the arena, registered with transformers under names of its own (registered.py).

Paths, each with the signature of `Attend`: a whole prompt from position 0 (SDPA, causal); queries at given positions by
compiled loops (bfloat16 on a CPU), Triton kernels (a GPU), grouped matmuls in blocks of rows (any CPU), and SDPA with
a mask (the slow twin of all). Rows see the slots up to their own position, whatever their order.
"""

from models.attention.base import Attend, AttentionChoice, BatchRows, QueryRows
from models.attention.grouped import GROUPED_QUERY_LIMIT, blocked_attention, grouped_attention
from models.attention.plain import masked_attention, whole_attention
from models.attention.registered import (
    ARENA_ATTENTION,
    ATTENTIONS,
    GROUPED_ATTENTION,
    PLAIN_ATTENTION,
    TRITON_ATTENTION,
    arena_attention,
    choose_attention,
    compiled_why_not,
    grouped_arena_attention,
    plain_arena_attention,
    triton_arena_attention,
    triton_why_not,
)

__all__ = [
    "ARENA_ATTENTION",
    "ATTENTIONS",
    "GROUPED_ATTENTION",
    "GROUPED_QUERY_LIMIT",
    "PLAIN_ATTENTION",
    "TRITON_ATTENTION",
    "Attend",
    "AttentionChoice",
    "BatchRows",
    "QueryRows",
    "arena_attention",
    "blocked_attention",
    "choose_attention",
    "compiled_why_not",
    "grouped_arena_attention",
    "grouped_attention",
    "masked_attention",
    "plain_arena_attention",
    "triton_arena_attention",
    "triton_why_not",
    "whole_attention",
]
