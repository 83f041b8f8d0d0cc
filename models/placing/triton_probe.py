"""Whether the Triton placer works here: it needs a GPU, its compiler, and a C compiler for what launches a kernel."""

import subprocess

import torch
from triton.errors import TritonError

from models.arena import Arena
from models.placing.plain import PlainPlacer
from models.placing.triton_placing import TritonPlacer
from storage.blocks import BlockHeader, encode_block
from storage.geometry import Geometry

_GEOMETRY = Geometry(layers=1, kv_heads=1, head_dim=16)
_TOKENS = 3


def why_not(placer: TritonPlacer, device: torch.device) -> str | None:
    """None where a few tokens are placed as the plain twin places them, else one line that says what is amiss."""
    if not placer.interpreted and (device.type != "cuda" or not torch.cuda.is_available()):
        return "it needs a CUDA device, or TRITON_INTERPRET=1"
    try:
        placed = _placed(placer, device)
    except (TritonError, RuntimeError, OSError, subprocess.SubprocessError) as error:
        lines = str(error).strip().splitlines()
        return f"triton cannot compile here ({lines[0][:200] if lines else type(error).__name__})"
    return None if torch.equal(placed, _placed(PlainPlacer(), device)) else "triton placed other numbers here"


def _placed(placer: TritonPlacer | PlainPlacer, device: torch.device) -> torch.Tensor:
    ramp = torch.linspace(-2, 2, _TOKENS * _GEOMETRY.head_dim).view(1, 1, _TOKENS, _GEOMETRY.head_dim)
    header = BlockHeader(
        key="0" * 64,
        fingerprint="none",
        collection="none",
        kind="self",
        context="alone",
        key_codec="int8",
        value_codec="int8",
        generation=0,
        tokens=_TOKENS,
        geometry=_GEOMETRY,
    )
    arena = Arena(_GEOMETRY, torch.bfloat16, device, window=_TOKENS)
    arena.reserve(_TOKENS)
    tables = torch.linspace(-1, 1, _TOKENS * _GEOMETRY.head_dim, device=device).view(_TOKENS, _GEOMETRY.head_dim)
    placer.place(encode_block(header, ramp, ramp.flip(3)), arena, 0, tables, tables.flip(1))
    return torch.cat((arena.keys, arena.values)).cpu()
