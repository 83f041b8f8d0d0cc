"""Placing on a GPU by one Triton kernel (see triton_kernels.py), from device memory or through staging."""

import math
import threading
from functools import lru_cache
from typing import Any, NamedTuple

import torch
import triton

from models.arena import Arena
from models.placing.base import Placer, checked_layers
from models.placing.recipes import recipes
from models.placing.triton_kernels import STORE_BF16, STORE_F16, STORE_F32, place_layers
from models.placing.triton_sides import side_of
from models.staging import SlotStaging, open_staging
from storage.blocks import EncodedBlock
from storage.blocks.layout import block_layout
from storage.geometry import Geometry

_STORES = {
    torch.float32: (STORE_F32, torch.float32),
    torch.bfloat16: (STORE_BF16, torch.int16),
    torch.float16: (STORE_F16, torch.float16),
}
# A tile holds both halves of its rows and four tables of them in registers: 32 rows leave room for several programs.
TILE_TOKENS = 32
HEADS_A_PROGRAM = 4
# Without fused multiply-add, so that the bits are plain torch's.
LAUNCH: dict[str, Any] = {"num_warps": 4, "enable_fp_fusion": False}
_WIDEST_BYTES = 16


class Compilation(NamedTuple):
    """What the kernel is compiled for, and how far a layer and its parts lie apart, in units of `UNIT` bytes."""

    constants: dict[str, Any]
    units: tuple[int, ...]


@lru_cache(maxsize=512)
def compilation(
    geometry: Geometry, tokens: int, key_codec: str, value_codec: str, dtype: torch.dtype
) -> Compilation | None:
    """The kernel for such blocks and arenas of this dtype; None where it knows a codec or the dtype not."""
    found = recipes(geometry, tokens, key_codec, value_codec)
    if found is None or dtype not in _STORES:
        return None
    key, value = side_of(found[0]), side_of(found[1])
    layer_bytes = block_layout(geometry, tokens, key_codec, value_codec).layer_bytes
    offsets = (layer_bytes, *key.offsets_bytes, *value.offsets_bytes)
    unit = math.gcd(_WIDEST_BYTES, *offsets)  # how far the compiler may widen loads
    rotated = geometry.head_dim & -geometry.head_dim
    constants = {
        "K_KIND": key.kind, "K_FIRST": key.first, "K_SECOND": key.second, "K_ROW": key.row_bytes,
        "V_KIND": value.kind, "V_FIRST": value.first, "V_SECOND": value.second, "V_ROW": value.row_bytes,
        "INVERSE_ROOT": rotated**-0.5, "ROOT": rotated**0.5, "UNIT": unit, "STORE": _STORES[dtype][0],
        "DIM": geometry.head_dim, "PAD": max(16, triton.next_power_of_2(geometry.head_dim // 2)),
        "TILE": TILE_TOKENS, "HEADS": HEADS_A_PROGRAM,
    }  # fmt: skip
    return Compilation(constants, tuple(offset // unit for offset in offsets))


class TritonPlacer(Placer):
    """Blocks of device memory are decoded where they lie; those of host memory are staged first, only their layers.

    `place` returns when the work is queued on this thread's current stream, the device's default one, like the
    model's passes: what is queued there afterwards sees the block, and nobody has to wait for anything. The block's
    host memory has been read by then, and its device memory stays the allocator's until the stream has passed.
    """

    name = "triton"

    def __init__(self) -> None:
        self.interpreted = not isinstance(place_layers, triton.runtime.JITFunction)
        self._launching = threading.Lock()  # compiling is not made for several threads, the interpreter even less
        self._staging: dict[torch.device, SlotStaging] = {}

    def serves(self, block: EncodedBlock, arena: Arena) -> bool:
        header = block.header
        if arena.device.type != "cuda" and not (self.interpreted and arena.device.type == "cpu"):
            return False
        if block.device_data is not None and block.device_data.device != arena.keys.device:
            return False
        known = compilation(header.geometry, header.tokens, header.key_codec, header.value_codec, arena.dtype)
        return known is not None and header.geometry == arena.geometry

    def place(
        self,
        block: EncodedBlock,
        arena: Arena,
        start: int,
        cos: torch.Tensor,
        sin: torch.Tensor,
        layers: range | None = None,
    ) -> None:
        run = checked_layers(block, arena, start, min(len(cos), len(sin)), layers)  # the kernel checks no bounds
        if not run:
            return
        step = block.header.layout.layer_bytes
        begin, end = run.start * step, run.stop * step
        if block.device_data is None:
            data = self.staging(arena.keys.device).copy(block.data[begin:end])
        else:
            data = block.device_data[begin:end]
            if data.data_ptr() % _WIDEST_BYTES:
                data = data.clone()  # compiled for memory that begins on 16 bytes
        self._launch(block, data, arena, start, cos, sin, run)

    def staging(self, device: torch.device) -> SlotStaging:
        """The staging of a device, opened when the first host block comes."""
        with self._launching:
            if device not in self._staging:
                self._staging[device] = open_staging(str(device))
            return self._staging[device]

    def _launch(
        self,
        block: EncodedBlock,
        data: torch.Tensor,
        arena: Arena,
        start: int,
        cos: torch.Tensor,
        sin: torch.Tensor,
        run: range,
    ) -> None:
        header, geometry = block.header, arena.geometry
        found = compilation(geometry, header.tokens, header.key_codec, header.value_codec, arena.dtype)
        if found is None:
            raise ValueError(f"codec {header.codec} is none that the kernel knows: ask `serves` first")
        seen_as = _STORES[arena.dtype][1]
        tiles, head_groups = -(-header.tokens // TILE_TOKENS), -(-geometry.kv_heads // HEADS_A_PROGRAM)
        kernel: Any = place_layers
        with self._launching, torch.cuda.device_of(arena.keys):  # type: ignore[no-untyped-call]
            kernel[(tiles, head_groups, 2 * len(run))](
                data, data.view(torch.int16), data.view(torch.float32), *found.units,
                header.tokens, geometry.kv_heads, len(run), cos, sin,
                arena.keys.view(seen_as), arena.values.view(seen_as), start, arena.capacity, run.start,
                **found.constants, **LAUNCH,
            )  # fmt: skip
