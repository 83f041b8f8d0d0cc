"""The compiled Triton kernel against plain torch on the same device, and both against the CPU."""

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
import torch

from models.arena import Arena
from models.placing import Placer, PlainPlacer, choose_placers
from storage.blocks import EncodedBlock
from storage.codecs import CODECS
from storage.geometry import Geometry
from storage.tiers import LockedBuffers
from tests.gpu.marks import NEEDS_CUDA
from tests.models.test_triton_placing import PAIRS, START, tables
from tests.storage.blocks.builders import make_block

pytestmark = NEEDS_CUDA
CPU, CUDA = torch.device("cpu"), torch.device("cuda")


@pytest.fixture(scope="module")
def triton() -> Placer:
    choice = choose_placers("auto", CUDA)
    assert choice.placers[0].name == "triton", choice.reason
    return choice.placers[0]


def place(
    placer: Placer,
    block: EncodedBlock,
    device: torch.device,
    dtype: torch.dtype = torch.bfloat16,
    layers: range | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    geometry, tokens = block.header.geometry, block.header.tokens
    arena = Arena(geometry, dtype, device, 1 << 16)
    arena.reserve(START + tokens + 2)
    cos, sin = (table.to(device) for table in tables(geometry.head_dim, START + tokens))
    placer.place(block, arena, START, cos, sin, layers)
    return arena.keys.cpu(), arena.values.cpu()


def assert_within_a_unit(found: torch.Tensor, expected: torch.Tensor) -> None:
    """At most one unit in the last place apart; where sums cancel, a millionth of the largest number instead."""
    width = {torch.bfloat16: torch.int16, torch.float16: torch.int16, torch.float32: torch.int32}[found.dtype]
    one, other = (tensor.contiguous().view(width).to(torch.int64) for tensor in (found, expected))
    far = ((one - other).abs() > 1) & ((found != 0) | (expected != 0))
    allowed = 1e-6 * float(expected.double().abs().max())
    apart = (found.double() - expected.double()).abs()
    assert not bool((far & (apart > allowed)).any()), f"{int(far.sum())} numbers are off, by up to {float(apart.max())}"


def assert_alike(triton: Placer, block: EncodedBlock, **options: object) -> None:
    found = place(triton, block, CUDA, **options)  # type: ignore[arg-type]
    for device in (CUDA, CPU):
        for one, other in zip(found, place(PlainPlacer(), block, device, **options), strict=True):  # type: ignore[arg-type]
            assert_within_a_unit(one, other)


@pytest.mark.parametrize("dim", [16, 64, 80, 96, 128])
@pytest.mark.parametrize("codec", [*CODECS, *PAIRS])
def test_every_codec_and_mixture(triton: Placer, codec: str, dim: int) -> None:
    assert_alike(triton, make_block(codec=codec, geometry=Geometry(3, 5, dim), tokens=131))


@pytest.mark.parametrize("tokens", [1, 2, 31, 32, 33, 63, 65, 257, 512])
@pytest.mark.parametrize("codec", ["int8", "int4", "int4h"])
def test_odd_lengths(triton: Placer, codec: str, tokens: int) -> None:
    assert_alike(triton, make_block(codec=codec, geometry=Geometry(2, 8, 128), tokens=tokens))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=["float32", "float16"])
@pytest.mark.parametrize("codec", ["int8", "int3h", "gse8", "e4m3", "f32"])
def test_other_arenas(triton: Placer, codec: str, dtype: torch.dtype) -> None:
    assert_alike(triton, make_block(codec=codec, geometry=Geometry(2, 2, 64), tokens=70), dtype=dtype)


@pytest.mark.parametrize("layers", [range(1), range(1, 3), range(3, 4)])
def test_runs_of_layers(triton: Placer, layers: range) -> None:
    assert_alike(triton, make_block(geometry=Geometry(4, 3, 24), tokens=37), layers=layers)


@pytest.mark.parametrize("layers", [None, range(1, 3)])
def test_blocks_of_every_memory(triton: Placer, layers: range | None) -> None:
    """Device memory, page-locked memory and plain memory give the same bytes."""
    block = make_block(codec="int8+int4h", geometry=Geometry(3, 3, 24), tokens=13)
    resident = torch.from_numpy(block.data).to(CUDA)
    locked = LockedBuffers(spare_bytes=0).take(block.data.nbytes)
    locked[:] = block.data
    expected = place(PlainPlacer(), block, CUDA, layers=layers)
    for each in (
        replace(block, data=np.empty(0, dtype=np.uint8), device_data=resident),
        replace(block, data=locked, buffer=locked),
        block,
    ):
        for one, other in zip(place(triton, each, CUDA, layers=layers), expected, strict=True):
            assert_within_a_unit(one, other)


def test_loaders_place_at_once_while_the_device_is_busy(triton: Placer) -> None:
    """Four threads, layers one after another, memory used again at once, behind work that keeps the stream busy."""
    geometry = Geometry(8, 8, 128)
    tokens = [200, 131, 64, 257, 33, 90, 512, 7]
    blocks = [make_block(codec="int4+int8", geometry=geometry, tokens=n, seed=n) for n in tokens]
    starts = np.cumsum([0, *tokens]).tolist()
    cos, sin = (table.to(CUDA) for table in tables(128, starts[-1]))
    placed, expected = (Arena(geometry, torch.bfloat16, CUDA, 1 << 16) for _ in range(2))
    for arena in (placed, expected):
        arena.reserve(starts[-1])
    for block, start in zip(blocks, starts, strict=False):
        PlainPlacer().place(block, expected, start, cos, sin)
    barrier = threading.Barrier(4)
    busy = torch.randn(4096, 4096, device=CUDA)

    def work(which: int) -> None:
        barrier.wait()
        for index in range(which, len(blocks), 4):
            scratch = replace(blocks[index], data=blocks[index].data.copy())
            for layer in range(geometry.layers):
                triton.place(scratch, placed, starts[index], cos, sin, range(layer, layer + 1))
            scratch.data.fill(0xAA)

    for _ in range(20):
        busy = (busy @ busy).clamp_(-1, 1)
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(work, range(4)))
    end = starts[-1]
    assert_within_a_unit(placed.keys[:, :, :end].cpu(), expected.keys[:, :, :end].cpu())
    assert_within_a_unit(placed.values[:, :, :end].cpu(), expected.values[:, :, :end].cpu())
