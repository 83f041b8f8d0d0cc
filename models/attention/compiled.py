"""Attention in bfloat16 on a CPU with AVX-512 by the compiled loops (loops.py)."""

import math
import struct
from array import array
from functools import lru_cache

import torch
from numba.core.registry import cpu_target

from models.attention.base import QueryRows
from models.attention.few_lanes import FEW_LANES, few_partial_bytes, few_scratch_bytes
from models.attention.few_vectors import FEW_DIMS
from models.attention.llvm import LANES
from models.attention.loops import MOST_LANES, partial_bytes, run, scratch_bytes
from models.attention.plain import masked_attention
from models.attention.team import Team

_FEATURES = ("+avx512f", "+avx512bf16")
# Units a thread below which they are split over slots, and the fewest slots worth a split.
_UNITS_A_THREAD, _SPLIT_SLOTS = 4, 128
_BF16_BYTES = 2
# Numbers between a job, which all threads read, and its counters, which they write: not on one line of the cache.
_APART = 8


def serves(query: torch.Tensor, key: torch.Tensor) -> bool:
    """Whether the loops know dtype and shape. `[1, heads, queries, head_dim]`, `[1, kv_heads, slots, head_dim]`."""
    cpu = query.device.type == "cpu" and query.dtype == key.dtype == torch.bfloat16
    return cpu and query.shape[3] % LANES == 0 and query.shape[1] // key.shape[1] <= MOST_LANES


def compiled_attention(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, rows: QueryRows, scale: float
) -> torch.Tensor:
    """`[1, heads, queries, head_dim]` bfloat16, sums in float32; for what `serves` says, where `why_not` is None."""
    return (few_attention if few_serves(query, key) else wide_attention)(query, key, value, rows, scale)


def few_serves(query: torch.Tensor, key: torch.Tensor) -> bool:
    """Whether there are so few query rows of a KV head, as in decoding, that the walk for few lanes takes less time."""
    return query.shape[3] % FEW_DIMS == 0 and query.shape[1] // key.shape[1] * query.shape[2] <= FEW_LANES


def wide_attention(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, rows: QueryRows, scale: float
) -> torch.Tensor:
    """The walk with queries side by side (loops.py), for any number of rows; the twin of `few_attention`."""
    head_dim = query.shape[3]
    block_rows = MOST_LANES // (query.shape[1] // key.shape[1])
    sizes = (0, partial_bytes(head_dim), scratch_bytes(head_dim))
    return _walk(query, key, value, rows, scale, block_rows, sizes)


def few_attention(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, rows: QueryRows, scale: float
) -> torch.Tensor:
    """The walk with keys and dimensions side by side (few_lanes.py), for what `few_serves` says."""
    _, heads, queries, head_dim = query.shape
    lanes = heads // key.shape[1] * queries
    sizes = (1, few_partial_bytes(head_dim, lanes), few_scratch_bytes(head_dim, lanes))
    return _walk(query, key, value, rows, scale, queries, sizes)


def _walk(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    rows: QueryRows,
    scale: float,
    block_rows: int,
    sizes: tuple[int, int, int],
) -> torch.Tensor:
    """Hand a `JOB` to the team; `sizes` are its last three numbers."""
    query, key, value = (each if each.stride(3) == 1 else each.contiguous() for each in (query, key, value))
    _, heads, queries, head_dim = query.shape
    kv_heads, slots = key.shape[1], key.shape[2]
    team, positions = _team(), rows.positions.contiguous()
    blocks = -(-queries // block_rows)
    units = blocks * kv_heads
    few_units = units < _UNITS_A_THREAD * team.threads
    splits = max(1, min(team.threads, slots // _SPLIT_SLOTS)) if few_units else 1
    out = torch.empty(1, queries, heads, head_dim, dtype=query.dtype)
    partial = torch.empty(units * splits * sizes[1] if splits > 1 else 0, dtype=torch.uint8)
    log_scale = struct.unpack("<I", struct.pack("<f", scale * math.log2(math.e)))[0]
    numbers = (
        units * splits, splits, blocks, block_rows, queries, heads // kv_heads, kv_heads, head_dim,
        slots, log_scale, query.data_ptr(), key.data_ptr(), value.data_ptr(), positions.data_ptr(), out.data_ptr(),
        partial.data_ptr(), *(each.stride(axis) * _BF16_BYTES for each in (query, key, value) for axis in (1, 2)),
        head_dim * _BF16_BYTES, heads * head_dim * _BF16_BYTES, *sizes,
    )  # fmt: skip
    counters = 1 + len(numbers) + _APART
    job = array("q", (0, *numbers, *(0,) * (_APART + 1 + units)))
    address = job.buffer_info()[0]
    job[0] = address + counters * job.itemsize
    team.run(address)
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
    ramp = torch.linspace(-2, 2, 4 * 40 * FEW_DIMS).view(1, 4, 40, FEW_DIMS)
    query, key = ramp.sin().to(torch.bfloat16), ramp[:, :2].cos().to(torch.bfloat16)
    rows = QueryRows(torch.tensor([0, 31, 39]), None)
    found = [walk(query[:, :, :3], key, key.flip(2), rows, 1.0).float() for walk in (wide_attention, few_attention)]
    expected = masked_attention(query[:, :, :3].float(), key.float(), key.flip(2).float(), rows, 1.0)
    agree = all(torch.allclose(each, expected, atol=0.02) for each in found)
    return None if agree else "compiled loops gave other numbers here"


@lru_cache(maxsize=1)
def _team() -> Team:
    return Team(run.address or 0)
