"""The Triton kernels of attention: interpreted against SDPA, and compiled for real GPUs without one."""

import os
from pathlib import Path

import pytest
import torch
import triton
from torch import nn
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from models.attention import masked_attention, triton_arena_attention
from models.attention.triton_attention import launch_options, serves, triton_attention, why_not
from models.attention.triton_kernels import attend
from tests.models.attending import inputs, random_rows
from tests.models.interpreted import run_interpreted

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
_POINTERS = {torch.bfloat16: "*bf16", torch.float16: "*fp16", torch.float32: "*fp32"}
SHARED_BYTES = 99 * 1024


needs_interpreter = pytest.mark.skipif(not INTERPRETED, reason="run interpreted by test_the_interpreter_agrees")
needs_compiler = pytest.mark.skipif(INTERPRETED, reason="TRITON_INTERPRET=1 compiles nothing")


@needs_compiler
def test_the_interpreter_agrees() -> None:
    assert "7 passed" in run_interpreted(__file__)


@needs_interpreter
@pytest.mark.parametrize(
    ("heads", "kv_heads", "queries", "slots", "head_dim", "dtype"),
    [
        (9, 3, 1, 1, 64, torch.float32),
        (9, 3, 1, 4096, 64, torch.float32),  # split over slots
        (2, 2, 25, 100, 80, torch.float32),
        (8, 2, 20, 150, 128, torch.float32),
        (8, 1, 12, 129, 256, torch.float32),
        (6, 2, 40, 200, 96, torch.float16),
    ],
)
def test_random_positions(
    heads: int, kv_heads: int, queries: int, slots: int, head_dim: int, dtype: torch.dtype
) -> None:
    tensors, rows = inputs(heads, kv_heads, queries, slots, head_dim, dtype), random_rows(queries, slots)
    assert serves(*tensors[:2])
    found = triton_attention(*tensors, rows, 0.3)
    query, key, value = (each.float() for each in tensors)
    expected = masked_attention(query, key, value, rows, 0.3)
    assert found.dtype == dtype
    off = 1e-4 if dtype == torch.float32 else 4e-3
    torch.testing.assert_close(found.float(), expected, atol=off, rtol=0)


@needs_interpreter
def test_the_arena_takes_it_and_a_probe_passes() -> None:
    assert why_not(torch.device("cpu")) is None
    tensors, rows = inputs(4, 2, 9, 60, 16, torch.float32), random_rows(9, 60)
    found, _ = triton_arena_attention(nn.Module(), *tensors, None, scaling=0.25, arena_rows=rows)
    assert torch.equal(found.transpose(1, 2), triton_attention(*tensors, rows, 0.25))


@needs_compiler
@pytest.mark.parametrize(
    ("head_dim", "dtype", "capability", "folded_rows", "splits"),
    [(128, torch.bfloat16, 90, 20000, 1), (128, torch.bfloat16, 89, 4, 16)],
)
def test_it_compiles_for_gpus(
    head_dim: int, dtype: torch.dtype, capability: int, folded_rows: int, splits: int, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """With the matrix units' instructions and within the shared memory of every GPU of today."""
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    constants = launch_options(folded_rows, head_dim, dtype)
    launch = {name: constants.pop(name) for name in ("num_warps", "num_stages")}
    constants |= {"GROUP": 4, "SPLITS": splits}
    kinds = dict.fromkeys(("query", "keys", "values"), _POINTERS[dtype])
    kinds |= {"out": _POINTERS[dtype] if splits == 1 else "*fp32", "sides": "*fp32", "positions": "*i64"}
    names = list(attend.arg_names)
    signature = {name: "constexpr" if name in constants else kinds.get(name, "i32") for name in names}
    signature["log_scale"] = "fp32"
    unaligned = {"log_scale", "folded_rows", "slots", "heads", *constants}
    aligned = {(names.index(name),): [["tt.divisibility", 16]] for name in names if name not in unaligned}
    numbered = {(names.index(name),): value for name, value in constants.items()}
    source = ASTSource(attend, signature, numbered, aligned)
    kernel = triton.compile(source, target=GPUTarget("cuda", capability, 32), options=launch)
    assembly = kernel.asm["ptx"]
    assert ("wgmma" if capability >= 90 else "mma.sync") in assembly
    assert "cp.async" in assembly, "the next tile comes while this one is computed"
    assert kernel.metadata.shared <= SHARED_BYTES
