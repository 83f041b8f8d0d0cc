"""The kernel compiled for real GPUs, without one: the interpreter takes code that the compiler refuses."""

import os
from pathlib import Path
from typing import Any

import pytest
import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from models.placing.triton_kernels import place_layers
from models.placing.triton_placing import LAUNCH, compilation
from storage.geometry import Geometry

POINTERS = {"bytes_": "*u8", "halves": "*i16", "words": "*fp32", "cos": "*fp32", "sin": "*fp32"}
OUT = {torch.bfloat16: "*i16", torch.float32: "*fp32", torch.float16: "*fp16"}

pytestmark = pytest.mark.skipif(os.environ.get("TRITON_INTERPRET") == "1", reason="TRITON_INTERPRET=1 compiles nothing")


def compiled(pair: tuple[str, str], dim: int, dtype: torch.dtype, capability: int) -> Any:
    """The kernel of a block of 256 tokens, as the placer would have it compiled."""
    found = compilation(Geometry(32, 8, dim), 256, *pair, dtype)
    assert found is not None
    names = list(place_layers.arg_names)
    kinds = {**POINTERS, "keys": OUT[dtype], "values": OUT[dtype]}
    signature = {name: "constexpr" if name in found.constants else kinds.get(name, "i32") for name in names}
    aligned = {(names.index(name),): [["tt.divisibility", 16]] for name in kinds}
    constants = {(names.index(name),): value for name, value in found.constants.items()}
    source = ASTSource(place_layers, signature, constants, aligned)
    return triton.compile(source, target=GPUTarget("cuda", capability, 32), options=LAUNCH)


@pytest.mark.parametrize(
    ("pair", "dim", "dtype", "capability"),
    [
        (("int8", "int4h"), 128, torch.bfloat16, 90),
        (("int4", "int4"), 128, torch.bfloat16, 80),
        (("gse8", "e4m3"), 64, torch.float32, 80),
        (("int3", "int3h"), 80, torch.float16, 90),
        (("int6", "int5h"), 64, torch.bfloat16, 90),
    ],
    ids=lambda value: "+".join(value) if isinstance(value, tuple) else str(value),
)
def test_it_compiles_and_reads_many_bytes_at_a_time(
    pair: tuple[str, str],
    dim: int,
    dtype: torch.dtype,
    capability: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    assembly = compiled(pair, dim, dtype, capability).asm["ptx"]
    assert "fma.rn.f32" not in assembly, "products and sums are rounded apart, as in plain torch"
    assert ".local" not in assembly, "everything stays in registers"
    assert "ld.global.v4.b32" in assembly
    assert "st.global.v4.b32" in assembly
