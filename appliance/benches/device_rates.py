"""How near placing comes to what the device's memory can do, and staging to what its bus can do: shares, measured."""

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import torch

from models.arena import Arena
from models.placing import Placer, choose_placers
from models.staging import open_staging
from storage.blocks import BlockHeader, EncodedBlock, encode_block
from storage.blocks.layout import block_layout
from storage.codecs import CodecPair
from storage.geometry import Geometry
from storage.tiers import LockedBuffers

# Far more than any cache holds, and so much that a launch's time on the host does not count.
SAMPLE_BYTES = 1 << 29
_ROUNDS = 5
_WARMING = 2
_LARGEST_WINDOW = 1 << 17


@dataclass(frozen=True)
class Share:
    """A rate in bytes a second, and its share of the best that was measured here."""

    bytes_per_s: float
    share: float


@dataclass(frozen=True)
class DeviceRates:
    """`memory` counts bytes read and written by a plain copy within the device, `pinned` a plain copy to it.

    `decode` by codec pair: encoded bytes read and arena bytes written over the time of decode + rotate + write.
    `copy` by where the bytes lie: `page_locked` (sent as they lie) and `pageable` (through staging's slots).
    """

    device: str
    placer: str
    memory_bytes_per_s: float
    pinned_bytes_per_s: float
    decode: dict[str, Share]
    copy: dict[str, Share]

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def measure_device_rates(
    device: torch.device, geometry: Geometry, pairs: Sequence[CodecPair], sample_bytes: int = SAMPLE_BYTES
) -> DeviceRates:
    """Measure everything, best of several; `geometry` is the model's. On a CPU the device is its memory."""
    memory, pinned = memory_bytes_per_s(device, sample_bytes), pinned_bytes_per_s(device, sample_bytes)
    return DeviceRates(
        device=torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu",
        placer=choose_placers("auto", device).placers[0].name,
        memory_bytes_per_s=memory,
        pinned_bytes_per_s=pinned,
        decode={pair.name: decode_share_of_bandwidth(device, geometry, pair, memory, sample_bytes) for pair in pairs},
        copy=copy_share_of_bandwidth(device, pinned, sample_bytes),
    )


def gpu_rates(device: torch.device, geometry: Geometry, pairs: Sequence[CodecPair]) -> dict[str, Any] | None:
    """The rates for a bench's facts; None without a GPU, where the loops are timed by `bench codecs`."""
    return measure_device_rates(device, geometry, pairs).as_json() if device.type == "cuda" else None


def decode_share_of_bandwidth(
    device: torch.device, geometry: Geometry, pair: CodecPair, memory: float, sample_bytes: int = SAMPLE_BYTES
) -> Share:
    """Decode + rotate + write of a block that lies on the device, against `memory` bytes a second."""
    element_bytes = pair_bytes_per_element(geometry, pair) + torch.bfloat16.itemsize
    tokens = int(sample_bytes / (2 * geometry.elements(1) * element_bytes))
    tokens = max(1, min(tokens, _LARGEST_WINDOW))
    block = sample_block(geometry, pair, tokens)
    if device.type == "cuda":
        resident = torch.from_numpy(block.data).to(device)
        block = replace(block, data=np.empty(0, dtype=np.uint8), device_data=resident)
    arena = Arena(geometry, torch.bfloat16, device, _LARGEST_WINDOW)
    arena.reserve(tokens)
    angles = torch.outer(torch.arange(tokens), torch.linspace(1, 1e-4, geometry.head_dim)).to(device)
    cos, sin = angles.cos(), angles.sin()
    placer: Placer = choose_placers("auto", device).find(block, arena)
    seconds = _best_seconds(device, lambda: placer.place(block, arena, 0, cos, sin))
    moved = block.header.layout.body_bytes + 2 * geometry.elements(tokens) * arena.dtype.itemsize
    return Share(moved / seconds, moved / seconds / memory)


def copy_share_of_bandwidth(device: torch.device, pinned: float, sample_bytes: int = SAMPLE_BYTES) -> dict[str, Share]:
    """Staging's way to the device, against `pinned` bytes a second."""
    staging = open_staging(str(device))
    plain = np.ones(sample_bytes, dtype=np.uint8)
    sources = {"pageable": plain}
    if device.type == "cuda":
        locked = LockedBuffers(spare_bytes=0).take(sample_bytes)
        locked[:] = plain
        sources["page_locked"] = locked
    rates = {name: sample_bytes / _best_seconds(device, _copying(staging.copy, data)) for name, data in sources.items()}
    return {name: Share(rate, rate / pinned) for name, rate in rates.items()}


def memory_bytes_per_s(device: torch.device, sample_bytes: int = SAMPLE_BYTES) -> float:
    """Bytes read and written a second by a plain copy within the device's memory."""
    source = torch.ones(sample_bytes // 2, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    return 2 * source.nbytes / _best_seconds(device, lambda: target.copy_(source))


def pinned_bytes_per_s(device: torch.device, sample_bytes: int = SAMPLE_BYTES) -> float:
    """Bytes a second of one plain copy of page-locked memory to the device; on a CPU a plain copy."""
    source = torch.ones(sample_bytes, dtype=torch.uint8, pin_memory=device.type == "cuda")
    target = torch.empty(sample_bytes, dtype=torch.uint8, device=device)
    return sample_bytes / _best_seconds(device, lambda: target.copy_(source, non_blocking=True))


def sample_block(geometry: Geometry, pair: CodecPair, tokens: int) -> EncodedBlock:
    """A block of random numbers; every layer holds the same bytes, so that making it takes one layer's time."""
    header = BlockHeader(
        key="0" * 64,
        fingerprint="none",
        collection="none",
        kind="self",
        context="alone",
        key_codec=pair.keys,
        value_codec=pair.values,
        generation=0,
        tokens=tokens,
        geometry=Geometry(1, geometry.kv_heads, geometry.head_dim),
    )
    shape = (2, 1, geometry.kv_heads, tokens, geometry.head_dim)
    keys, values = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    layer = encode_block(header, keys, values)
    whole = replace(header, geometry=geometry)
    data = np.zeros(whole.layout.data_bytes, dtype=np.uint8)
    data[: whole.layout.body_bytes] = np.tile(layer.data[: whole.layout.layer_bytes], geometry.layers)
    return EncodedBlock(whole, data)


def pair_bytes_per_element(geometry: Geometry, pair: CodecPair) -> float:
    """Encoded bytes an element, mean over keys and values."""
    tokens = 256
    return block_layout(geometry, tokens, pair.keys, pair.values).body_bytes / (2 * geometry.elements(tokens))


def _copying(copy: Callable[[np.ndarray], torch.Tensor], data: np.ndarray) -> Callable[[], object]:
    return lambda: copy(data)


def _best_seconds(device: torch.device, action: Callable[[], object]) -> float:
    """The fastest of several runs, each with the device's work waited for."""
    best = float("inf")
    for turn in range(_WARMING + _ROUNDS):
        _wait(device)
        began = time.perf_counter()
        action()
        _wait(device)
        if turn >= _WARMING:
            best = min(best, time.perf_counter() - began)
    return best


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
