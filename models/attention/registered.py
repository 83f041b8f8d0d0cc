"""What transformers calls: attention over the arena under its names, and which of them a computer gets."""

from collections.abc import Callable, Sequence
from functools import lru_cache

import torch
from torch import nn
from transformers import AttentionInterface

from models.attention.base import Attend, AttentionChoice, BatchRows, QueryRows
from models.attention.grouped import blocked_attention
from models.attention.plain import masked_attention, whole_attention
from models.errors import DeviceUnavailable

ATTENTIONS = ("auto", "triton", "compiled", "grouped", "plain")
ARENA_ATTENTION = "arena"
GROUPED_ATTENTION = "arena_grouped"
TRITON_ATTENTION = "arena_triton"
PLAIN_ATTENTION = "arena_plain"

# One tensor `[1, kv_heads, slots, head_dim]`, or for a batch one a part.
Slots = torch.Tensor | Sequence[torch.Tensor]
Registered = Callable[..., tuple[torch.Tensor, None]]


def _registered(pick: Callable[[torch.Tensor, torch.Tensor], Attend], text: str) -> Registered:
    """An attention function of transformers' kind that takes, by shape, the path that `pick` names."""

    def attention(
        module: nn.Module,
        query: torch.Tensor,
        key: Slots,
        value: Slots,
        attention_mask: torch.Tensor | None,
        scaling: float | None = None,
        **options: object,
    ) -> tuple[torch.Tensor, None]:
        scale = query.shape[-1] ** -0.5 if scaling is None else scaling
        rows = options.get("arena_rows")
        if isinstance(rows, QueryRows) and isinstance(key, torch.Tensor) and isinstance(value, torch.Tensor):
            return _attend(pick, query, key, value, rows, scale).transpose(1, 2), None
        if not isinstance(rows, BatchRows):
            raise TypeError("arena attention needs arena_rows: run the model through models.forward")
        parts = zip(rows.slices(), key, value, rows.parts, strict=True)
        out = [_attend(pick, query[:, :, at], k, v, part, scale).transpose(1, 2) for at, k, v, part in parts]
        return torch.cat(out, dim=1), None

    attention.__doc__ = f"""{text}

    Query `[1, heads, queries, head_dim]` over key and value `[1, kv_heads, slots, head_dim]`; slot index is position.
    Returns `[1, queries, heads, head_dim]`. The positions come as `arena_rows` in the forward's keyword arguments;
    `attention_mask` is not used, positions are compared instead. With `BatchRows` key and value are sequences,
    one tensor a part. Raises TypeError without rows.
    """
    return attention


def _attend(
    pick: Callable[[torch.Tensor, torch.Tensor], Attend],
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    rows: QueryRows,
    scale: float,
) -> torch.Tensor:
    if rows.first == 0 and query.shape[2] == key.shape[2]:
        return whole_attention(query, key, value, rows, scale)
    return pick(query, key)(query, key, value, rows, scale)


def _on_a_cpu(query: torch.Tensor, key: torch.Tensor) -> Attend:
    if query.dtype == torch.bfloat16 and query.device.type == "cpu" and compiled_why_not() is None:
        from models.attention import compiled

        if compiled.serves(query, key):
            return compiled.compiled_attention
    return blocked_attention


def _on_a_gpu(query: torch.Tensor, key: torch.Tensor) -> Attend:
    from models.attention import triton_attention as kernels

    return kernels.triton_attention if kernels.serves(query, key) else masked_attention


arena_attention = _registered(_on_a_cpu, "A CPU's: the compiled loops where they serve, else grouped matmuls.")
grouped_arena_attention = _registered(lambda query, key: blocked_attention, "Grouped matmuls alone.")
triton_arena_attention = _registered(_on_a_gpu, "A GPU's: the Triton kernels where they serve, else SDPA.")
plain_arena_attention = _registered(lambda query, key: masked_attention, "The slow twin of all: SDPA alone.")


@lru_cache(maxsize=1)
def compiled_why_not() -> str | None:
    """None where the compiled loops work on this CPU, else one line that says what is amiss."""
    try:
        from models.attention.compiled import why_not
    except ImportError as error:
        return f"numba cannot be loaded ({error})"
    return why_not()


def triton_why_not(device: torch.device) -> str | None:
    """None where the Triton kernels work on this device, else one line that says what is amiss."""
    try:
        from models.attention.triton_attention import why_not
    except (ImportError, RuntimeError) as error:
        return f"triton cannot be loaded ({error})"
    return why_not(device)


def choose_attention(asked: str, device: torch.device, dtype: torch.dtype | None = None) -> AttentionChoice:
    """`auto`: Triton on a GPU, compiled loops on a CPU, each where a probe works; the other names force a path.

    `dtype` is the model's, None where it is not known yet. Raises DeviceUnavailable for what cannot be had.
    """
    if asked not in ATTENTIONS:
        raise DeviceUnavailable(f"attention {asked!r} is unknown: choose one of {', '.join(ATTENTIONS)}")
    if asked == "plain":
        return AttentionChoice(PLAIN_ATTENTION, "plain", "asked for")
    if asked == "grouped":
        return AttentionChoice(GROUPED_ATTENTION, "grouped", "asked for")
    on_gpu = device.type != "cpu"
    if asked == "triton" or (asked == "auto" and on_gpu):
        amiss = triton_why_not(device)
        found = AttentionChoice(TRITON_ATTENTION, "triton", "triton compiles for this GPU")
        twin = AttentionChoice(PLAIN_ATTENTION, "plain", f"SDPA: {amiss}")
    else:
        amiss = "only bfloat16 on a CPU is compiled" if on_gpu or dtype not in (None, torch.bfloat16) else None
        amiss = amiss or compiled_why_not()
        found = AttentionChoice(ARENA_ATTENTION, "compiled", "loops over bfloat16 with AVX-512 compile here")
        twin = AttentionChoice(GROUPED_ATTENTION, "grouped", f"matmuls: {amiss}")
    if asked == "auto":
        return found if amiss is None else twin
    if amiss is not None:
        raise DeviceUnavailable(f"attention {asked!r} cannot be used: {amiss}; use --attention auto")
    return AttentionChoice(found.implementation, found.name, "asked for")


AttentionInterface.register(ARENA_ATTENTION, arena_attention)
AttentionInterface.register(GROUPED_ATTENTION, grouped_arena_attention)
AttentionInterface.register(TRITON_ATTENTION, triton_arena_attention)
AttentionInterface.register(PLAIN_ATTENTION, plain_arena_attention)
