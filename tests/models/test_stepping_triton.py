"""The Triton kernels of a decode step: interpreted against transformers' modules, and compiled without a GPU."""

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from models.decoding import DecodeRow, decode_each
from models.loading import load_language_model
from models.stepping import EagerRunner, Steps, kernels
from models.stepping.triton_kernels import add_and_norm, gate, turn_and_write
from tests.models.interpreted import run_interpreted
from tests.models.test_stepping import read
from tests.models.tiny import ARCHITECTURES, save_tiny_model

CPU = torch.device("cpu")
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
POINTERS = {"position": "*i64", "cos": "*fp32", "sin": "*fp32", "eps": "fp32", "width": "i32", "head_stride": "i32"}

needs_interpreter = pytest.mark.skipif(not INTERPRETED, reason="run interpreted by test_the_interpreter_agrees")
needs_compiler = pytest.mark.skipif(INTERPRETED, reason="TRITON_INTERPRET=1 compiles nothing")


@needs_compiler
def test_the_interpreter_agrees() -> None:
    assert "5 passed" in run_interpreted(__file__)


@needs_interpreter
@pytest.mark.parametrize(
    ("architecture", "head_dim", "dtype", "near"),
    [*((architecture, 16, torch.float32, 1e-4) for architecture in ARCHITECTURES), ("qwen3", 24, torch.float16, 5e-2)],
)
def test_kernels_give_what_modules_give(
    architecture: str, head_dim: int, dtype: torch.dtype, near: float, tmp_path: Path
) -> None:
    """Logits and the slots written. Half precision shows that they round where the modules do."""
    folder = save_tiny_model(tmp_path / "model", architecture, "yarn", head_dim=head_dim)
    model = load_language_model(folder, CPU, attention="triton")
    model = replace(model, dtype=dtype, backbone=model.backbone.to(dtype), lm_head=model.lm_head.to(dtype))
    assert kernels.serves(model)
    steps = Steps(model, EagerRunner("a test"), kernels.kernel_pass)
    (plain, token), (ours, _) = read(model, 40), read(model, 40)
    for position in (40, 41):
        expected = decode_each(model, [DecodeRow(token, position, plain)])[0]
        found = steps.logits(model, ours, position, token)
        torch.testing.assert_close(found, expected, atol=near, rtol=0)
        token = int(expected.argmax())
    for found, expected in ((ours.keys, plain.keys), (ours.values, plain.values)):
        torch.testing.assert_close(found, expected, atol=near, rtol=0)


@needs_compiler
@pytest.mark.parametrize(
    ("kernel", "constants", "warps"),
    [
        (add_and_norm, {"WIDTH": 4096, "PAD": 4096, "ADD": True}, 8),
        (turn_and_write, {"HEADS": 32, "KV_HEADS": 8, "DIM": 128, "PAD": 128, "NORM": True}, 1),
        (turn_and_write, {"HEADS": 32, "KV_HEADS": 32, "DIM": 80, "PAD": 128, "NORM": False}, 1),
        (gate, {"BLOCK": 1024}, 4),
    ],
)
def test_they_compile_for_gpus(
    kernel: Any, constants: dict[str, Any], warps: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    names = list(kernel.arg_names)
    signature = {name: "constexpr" if name in constants else POINTERS.get(name, "*bf16") for name in names}
    numbered = {(names.index(name),): value for name, value in constants.items()}
    aligned = {(names.index(name),): [["tt.divisibility", 16]] for name in names if name not in {*constants, "eps"}}
    source = ASTSource(kernel, signature, numbered, aligned)
    compiled = triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": warps})
    assert ".local" not in compiled.asm["ptx"], "everything stays in registers"
