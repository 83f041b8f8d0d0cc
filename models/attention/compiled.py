"""Attention in bfloat16 on a CPU with AVX-512 by the compiled loops (loops.py)."""

import math
import struct
from functools import lru_cache

import numpy as np
import torch
from numba.core.registry import cpu_target

from models.attention.base import QueryRows
from models.attention.loops import MOST_LANES, partial_bytes, run
from models.attention.plain import masked_attention
from models.attention.team import Team
from models.attention.vectors import LANES

_FEATURES = ("+avx512f", "+avx512bf16")
# Units a thread below which they are split over slots, and the fewest slots worth a split.
_UNITS_A_THREAD, _SPLIT_SLOTS = 4, 128
_BF16_BYTES = 2


def serves(query: torch.Tensor, key: torch.Tensor) -> bool:
    """Whether the loops know dtype and shape. `[1, heads, queries, head_dim]`, `[1, kv_heads, slots, head_dim]`."""
    cpu = query.device.type == "cpu" and query.dtype == key.dtype == torch.bfloat16
    return cpu and query.shape[3] % LANES == 0 and query.shape[1] // key.shape[1] <= MOST_LANES


def compiled_attention(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, rows: QueryRows, scale: float
) -> torch.Tensor:
    """`[1, heads, queries, head_dim]` bfloat16, sums in float32; for what `serves` says, where `why_not` is None."""
    query, key, value = (each if each.stride(3) == 1 else each.contiguous() for each in (query, key, value))
    _, heads, queries, head_dim = query.shape
    kv_heads, slots = key.shape[1], key.shape[2]
    team, positions = _team(), rows.positions.contiguous()
    block_rows = MOST_LANES // (heads // kv_heads)
    blocks = -(-queries // block_rows)
    units = blocks * kv_heads
    few = units < _UNITS_A_THREAD * team.threads
    splits = max(1, min(team.threads, slots // _SPLIT_SLOTS)) if few else 1
    out = torch.empty(1, queries, heads, head_dim, dtype=query.dtype)
    partial = torch.empty(units * splits * partial_bytes(head_dim) if splits > 1 else 0, dtype=torch.uint8)
    counters = torch.zeros(1 + units, dtype=torch.int64)
    log_scale = struct.unpack("<I", struct.pack("<f", scale * math.log2(math.e)))[0]
    numbers = (
        counters.data_ptr(), units * splits, splits, blocks, block_rows, queries, heads // kv_heads, kv_heads, head_dim,
        slots, log_scale, query.data_ptr(), key.data_ptr(), value.data_ptr(), positions.data_ptr(), out.data_ptr(),
        partial.data_ptr(), *(each.stride(axis) * _BF16_BYTES for each in (query, key, value) for axis in (1, 2)),
        head_dim * _BF16_BYTES, heads * head_dim * _BF16_BYTES,
    )  # fmt: skip
    job = np.array(numbers, dtype=np.int64)
    team.run(job.ctypes.data)
    return out.transpose(1, 2)


@lru_cache(maxsize=1)
def why_not() -> str | None:
    """None where the loops compile and agree with SDPA on a few rows, else one line that says what is amiss."""
    features = cpu_target.target_context.codegen().magic_tuple()[2].split(",")
    missing = [feature[1:] for feature in _FEATURES if feature not in features]
    if missing:
        return f"the processor has no {missing[0]}"
    try:
        _team()
    except OSError as error:
        return str(error)
    ramp = torch.linspace(-2, 2, 4 * 40 * LANES).view(1, 4, 40, LANES)
    query, key = ramp.sin().to(torch.bfloat16), ramp[:, :2].cos().to(torch.bfloat16)
    rows = QueryRows(torch.tensor([0, 31, 39]), None)
    found = compiled_attention(query[:, :, :3], key, key.flip(2), rows, 1.0)
    expected = masked_attention(query[:, :, :3].float(), key.float(), key.flip(2).float(), rows, 1.0)
    return None if torch.allclose(found.float(), expected, atol=0.02) else "compiled loops gave other numbers here"


@lru_cache(maxsize=1)
def _team() -> Team:
    return Team(run.address or 0)
