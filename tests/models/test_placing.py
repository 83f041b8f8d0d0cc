"""The compiled loops against their plain twin: the same bytes, in every shape, and not one slot beside their own."""

import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

from models.arena import Arena
from models.errors import DeviceUnavailable
from models.placing import PLACERS, Placer, choose_placers
from storage.blocks import EncodedBlock, encode_block
from storage.codecs import CODECS
from storage.geometry import Geometry
from tests.storage.blocks.builders import make_block

CPU = torch.device("cpu")
GEOMETRIES = [Geometry(1, 1, 8), Geometry(3, 2, 16), Geometry(2, 3, 64), Geometry(2, 1, 128)]
TOKENS = [1, 2, 3, 31, 64, 255, 300]
each_dtype = pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
each_geometry = pytest.mark.parametrize("geometry", GEOMETRIES, ids=lambda g: f"{g.layers}x{g.kv_heads}x{g.head_dim}")


def placer(name: str) -> Placer:
    return choose_placers(name).placers[0]


def tables(geometry: Geometry, positions: int, scaling: float = 1.0) -> tuple[torch.Tensor, torch.Tensor]:
    """Cosines and sines `[positions, head_dim]`, the halves alike as in every rotary model."""
    speeds = 10000.0 ** -(torch.arange(0, geometry.head_dim, 2) / geometry.head_dim)
    angles = torch.outer(torch.arange(positions).float(), speeds).repeat(1, 2)
    return angles.cos() * scaling, angles.sin() * scaling


def filled_arena(geometry: Geometry, tokens: int, dtype: torch.dtype) -> Arena:
    """An arena whose every slot holds a number of its own."""
    arena = Arena(geometry, dtype, CPU, 4096)
    arena.reserve(tokens)
    generator = torch.Generator().manual_seed(1)
    arena.keys.copy_(torch.randn(arena.keys.shape, generator=generator))
    arena.values.copy_(torch.randn(arena.values.shape, generator=generator))
    return arena


def place(name: str, block: EncodedBlock, start: int, dtype: torch.dtype, scaling: float = 1.0) -> Arena:
    geometry, tokens = block.header.geometry, block.header.tokens
    arena = filled_arena(geometry, start + tokens + 3, dtype)
    chosen = placer(name)
    assert chosen.serves(block, arena)
    chosen.place(block, arena, start, *tables(geometry, start + tokens, scaling))
    return arena


def same_bytes(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Bit equality, where also 0 and -0 differ."""
    width = torch.int32 if one.dtype == torch.float32 else torch.int16
    return torch.equal(one.view(width), other.view(width))


@each_dtype
@each_geometry
@pytest.mark.parametrize("tokens", TOKENS)
def test_compiled_equals_plain_to_the_last_bit(dtype: torch.dtype, geometry: Geometry, tokens: int) -> None:
    block = make_block(geometry=geometry, tokens=tokens, seed=tokens)
    for start in (0, 1, 777):
        compiled, plain = (place(name, block, start, dtype) for name in ("compiled", "plain"))
        assert same_bytes(compiled.keys, plain.keys)
        assert same_bytes(compiled.values, plain.values)


@each_dtype
def test_the_same_with_a_scaled_rotary_and_strange_numbers(dtype: torch.dtype) -> None:
    """Yarn scales its tables; a chunk may hold zeros, outliers and denormals."""
    base = make_block(tokens=41)
    keys, values = base.decode()
    keys[:, :, :, 3] = 0
    keys[:, :, 5] *= 1e6
    values[:, :, 7] = 0
    values[:, :, 8] *= 1e-41
    values[:, :, 9] *= 1e30
    block = encode_block(base.header, keys, values)
    compiled, plain = (place(name, block, 100, dtype, scaling=1.3466) for name in ("compiled", "plain"))
    assert same_bytes(compiled.keys, plain.keys)
    assert same_bytes(compiled.values, plain.values)


@each_dtype
@pytest.mark.parametrize("name", ["compiled", "plain"])
@pytest.mark.parametrize("start", [0, 5, 60])
def test_neighbours_are_not_touched(dtype: torch.dtype, name: str, start: int) -> None:
    block = make_block(tokens=37)
    before = block.data.copy()
    untouched = filled_arena(block.header.geometry, start + 40, dtype)
    arena = place(name, block, start, dtype)
    beside = torch.ones(arena.capacity, dtype=torch.bool)
    beside[start : start + 37] = False
    assert same_bytes(arena.keys[:, :, beside], untouched.keys[:, :, beside])
    assert same_bytes(arena.values[:, :, beside], untouched.values[:, :, beside])
    changed = (arena.keys != untouched.keys)[:, :, ~beside]
    assert float(changed.float().mean()) > 0.9, "the block's own slots were not all written"
    assert np.array_equal(block.data, before), "placing changed the block"


@each_dtype
@pytest.mark.parametrize("name", ["compiled", "plain"])
def test_placing_is_decoding_and_rotating(dtype: torch.dtype, name: str) -> None:
    """Against arithmetic written down here, not in the code under test."""
    block, start = make_block(tokens=19), 11
    arena = place(name, block, start, dtype)
    keys, values = block.decode()
    cos, sin = (table[start:].double() for table in tables(block.header.geometry, start + 19))
    low, high = keys.double().chunk(2, dim=-1)
    turned = torch.cat((low * cos[:, :8] - high * sin[:, :8], high * cos[:, 8:] + low * sin[:, 8:]), dim=-1)
    tolerance = 1e-5 if dtype == torch.float32 else 2e-2
    torch.testing.assert_close(arena.keys[:, :, 11:30].double(), turned, atol=tolerance, rtol=tolerance)
    torch.testing.assert_close(arena.values[:, :, 11:30], values.to(dtype), atol=0, rtol=0)


@pytest.mark.parametrize("codec", CODECS)
def test_every_codec_has_a_placer(codec: str) -> None:
    block = make_block(codec=codec)
    arena = filled_arena(block.header.geometry, 64, torch.float32)
    cos, sin = tables(block.header.geometry, 64)
    choice = choose_placers()
    found = choice.find(block, arena)
    found.place(block, arena, 3, cos, sin)
    assert found.name == ("compiled" if codec == "int8" else "plain")
    assert same_bytes(arena.keys, place("plain", block, 3, torch.float32).keys)


def test_what_the_loops_cannot_do_goes_to_the_plain_twin() -> None:
    compiled = placer("compiled")
    arena = filled_arena(Geometry(3, 2, 16), 64, torch.float32)
    assert compiled.serves(make_block(), arena)
    assert not compiled.serves(make_block(codec="int8+bf16"), arena)
    assert not compiled.serves(make_block(geometry=Geometry(3, 1, 32)), arena), "another model's block"
    assert not compiled.serves(make_block(), filled_arena(Geometry(3, 2, 16), 64, torch.float16))


@pytest.mark.parametrize("start", [-1, 480, 512, 10_000])
def test_slots_outside_the_arena_are_refused(start: int) -> None:
    """The loops check no bounds, so a wrong start must never reach them."""
    arena = filled_arena(Geometry(3, 2, 16), 64, torch.float32)
    assert arena.capacity == 512
    kept = arena.keys.clone()
    with pytest.raises(ValueError, match="512 slots"):
        placer("compiled").place(make_block(), arena, start, *tables(arena.geometry, 20_000))
    assert torch.equal(arena.keys, kept)
    with pytest.raises(ValueError, match="slots 3 to 40"):  # tables that do not reach the block's end
        placer("compiled").place(make_block(), arena, 3, *tables(arena.geometry, 20))


def test_the_switch_forces_either(monkeypatch: pytest.MonkeyPatch) -> None:
    assert [p.name for p in choose_placers("auto").placers] == ["compiled", "plain"]
    assert [p.name for p in choose_placers("compiled").placers] == ["compiled", "plain"]
    assert [p.name for p in choose_placers("plain").placers] == ["plain"]
    assert all(choose_placers(name).reason for name in PLACERS)
    with pytest.raises(DeviceUnavailable, match="auto, compiled, plain"):
        choose_placers("fast")


def test_without_numba_the_plain_twin_serves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "models.placing.compiled", None)
    choice = choose_placers("auto")
    assert [p.name for p in choice.placers] == ["plain"]
    assert "numba" in choice.reason
    with pytest.raises(DeviceUnavailable, match="reinstall numba"):
        choose_placers("compiled")


@each_dtype
def test_threads_placing_different_blocks_give_the_same_bytes(dtype: torch.dtype) -> None:
    geometry = Geometry(2, 2, 32)
    blocks = [make_block(geometry=geometry, tokens=tokens, seed=tokens) for tokens in (50, 61, 1, 33, 80, 7)]
    starts = np.cumsum([0, *(block.header.tokens for block in blocks)]).tolist()
    cos, sin = tables(geometry, starts[-1])
    expected = filled_arena(geometry, starts[-1], dtype)
    for block, start in zip(blocks, starts, strict=False):
        placer("plain").place(block, expected, start, cos, sin)
    barrier = threading.Barrier(2)
    for _ in range(10):
        arena = filled_arena(geometry, starts[-1], dtype)

        def work(which: int, into: Arena = arena) -> None:
            barrier.wait()
            for block, start in list(zip(blocks, starts, strict=False))[which::2]:
                placer("compiled").place(block, into, start, cos, sin)

        with ThreadPoolExecutor(2) as threads:
            list(threads.map(work, range(2)))
        assert same_bytes(arena.keys, expected.keys)
        assert same_bytes(arena.values, expected.values)
