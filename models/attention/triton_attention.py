"""Attention on a GPU by the Triton kernels (triton_kernels.py), and whether they work here."""

import math
import subprocess
import threading
from functools import lru_cache
from typing import Any

import torch
import triton
from triton.errors import TritonError

from models.attention.base import QueryRows
from models.attention.plain import masked_attention
from models.attention.triton_kernels import attend, join

INTERPRETED = not isinstance(attend, triton.runtime.JITFunction)
LARGEST_HEAD_DIM = 256
_BF16, _DTYPES = torch.bfloat16, (torch.float16, torch.float32)
# A GPU's multiprocessors must be kept busy with programs; a split is worth its joining from so many slots on.
_PROGRAMS_A_PROCESSOR, _SPLIT_SLOTS, _MOST_SPLITS = 2, 256, 64
_INTERPRETED_PROCESSORS = 4
_launching = threading.Lock()  # compiling is not made for several threads, the interpreter even less


def serves(query: torch.Tensor, key: torch.Tensor) -> bool:
    """Whether the kernels know dtype and shape. `[1, heads, queries, head_dim]`, `[1, kv_heads, slots, head_dim]`."""
    here = query.device.type == "cuda" or INTERPRETED
    # The interpreter multiplies the bits of bfloat16 as integers.
    known = query.dtype == key.dtype and query.dtype in ((_BF16, *_DTYPES) if not INTERPRETED else _DTYPES)
    return here and known and query.shape[3] <= LARGEST_HEAD_DIM


def launch_options(folded_rows: int, head_dim: int, dtype: torch.dtype) -> dict[str, Any]:
    """Folded rows a program, slots a tile, warps and stages, within 99 KiB of shared memory (any GPU of today)."""
    wide, large = head_dim > 128, dtype == torch.float32
    most = 32 if wide and large else 64 if wide or large else 128
    block = 16 if folded_rows <= 16 else min(most, 64 if folded_rows <= 512 else 128)
    tile = 16 if wide and large else 32 if wide or large else 64
    return {
        "BLOCK": block, "TILE": tile, "DIM": head_dim, "PAD": max(16, triton.next_power_of_2(head_dim)),
        "PRECISION": "ieee" if large else "tf32", "num_warps": 8 if block == 128 else 4, "num_stages": 2,
    }  # fmt: skip


def triton_attention(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, rows: QueryRows, scale: float
) -> torch.Tensor:
    """`[1, heads, queries, head_dim]`, sums in float32; for what `serves` says. Queued on the current stream."""
    query, key, value = (each if each.stride(3) == 1 else each.contiguous() for each in (query, key, value))
    _, heads, queries, head_dim = query.shape
    kv_heads, slots = key.shape[1], key.shape[2]
    group = heads // kv_heads
    options = launch_options(queries * group, head_dim, query.dtype)
    blocks = -(-queries * group // options["BLOCK"])
    splits = _splits(blocks * kv_heads, slots, query.device)
    out = torch.empty(1, queries, heads, head_dim, dtype=query.dtype, device=query.device)
    parts, sides = out, out
    if splits > 1:
        parts = torch.empty(splits, queries, heads, head_dim, dtype=torch.float32, device=query.device)
        sides = torch.empty(splits, heads, queries, dtype=torch.float32, device=query.device)
    first: Any = attend
    second: Any = join
    with _launching, torch.cuda.device_of(query):  # type: ignore[no-untyped-call]
        first[(blocks, kv_heads, splits)](
            query, key, value, rows.positions.contiguous(), parts, sides, queries * group, slots,
            scale * math.log2(math.e), query.stride(1), query.stride(2), key.stride(1), key.stride(2),
            value.stride(1), value.stride(2), parts.stride(0), head_dim, heads * head_dim, heads,
            GROUP=group, SPLITS=splits, **options,
        )  # fmt: skip
        if splits > 1:
            padded = triton.next_power_of_2(splits)
            second[(queries, heads)](
                parts, sides, out, queries, heads, DIM=head_dim, PAD=options["PAD"], SPLITS=splits, PADDED_SPLITS=padded
            )
    return out.transpose(1, 2)


def why_not(device: torch.device) -> str | None:
    """None where a few rows give what SDPA gives, else one line that says what is amiss."""
    if not INTERPRETED and (device.type != "cuda" or not torch.cuda.is_available()):
        return "it needs a CUDA device, or TRITON_INTERPRET=1"
    ramp = torch.linspace(-2, 2, 4 * 40 * 16, device=device).view(1, 4, 40, 16)
    query, key, value = ramp.sin()[:, :, :3], ramp[:, :2].cos(), ramp[:, :2].flip(2)
    rows = QueryRows(torch.tensor([0, 31, 39], device=device), None)
    try:
        found = triton_attention(query, key, value, rows, 1.0)
    except (TritonError, RuntimeError, OSError, subprocess.SubprocessError) as error:
        lines = str(error).strip().splitlines()
        return f"triton cannot compile here ({lines[0][:200] if lines else type(error).__name__})"
    same = torch.allclose(found, masked_attention(query, key, value, rows, 1.0), atol=1e-3)
    return None if same else "triton gave other numbers here"


def _splits(programs: int, slots: int, device: torch.device) -> int:
    """Into how many parts the slots are split, a power of two: each number is a compilation of its own."""
    wanted = _PROGRAMS_A_PROCESSOR * _processors(device) // programs
    most = min(wanted, slots // _SPLIT_SLOTS, _MOST_SPLITS)
    return 1 << (most.bit_length() - 1) if most > 1 else 1


@lru_cache(maxsize=16)
def _processors(device: torch.device) -> int:
    if device.type != "cuda":
        return _INTERPRETED_PROCESSORS
    return int(torch.cuda.get_device_properties(device).multi_processor_count)
