"""The compiled loops against their plain twin: the same bytes, in every shape, and not one slot beside their own."""

import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

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
GEOMETRIES = [Geometry(1, 1, 8), Geometry(3, 2, 16), Geometry(2, 3, 64), Geometry(1, 2, 80), Geometry(2, 1, 128)]
TOKENS = [1, 2, 63, 65, 129, 300]
MIXED = ["int4+int8", "int8+int4h", "int3+int4", "bf16+int3h", "gse8+e4m3", "f32+int4f", "int8t+gse8-134s3"]
MIXED += ["int6+int4h", "int5+int8", "int3+int6h", "int4+int5h"]
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


def place(
    name: str,
    block: EncodedBlock,
    start: int,
    dtype: torch.dtype,
    scaling: float = 1.0,
    layers: range | None = None,
) -> Arena:
    geometry, tokens = block.header.geometry, block.header.tokens
    arena = filled_arena(geometry, start + tokens + 3, dtype)
    chosen = placer(name)
    assert chosen.serves(block, arena)
    chosen.place(block, arena, start, *tables(geometry, start + tokens, scaling), layers)
    return arena


def same_bytes(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Bit equality, where also 0 and -0 differ."""
    width = torch.int32 if one.dtype == torch.float32 else torch.int16
    return torch.equal(one.view(width), other.view(width))


@each_dtype
@each_geometry
@pytest.mark.parametrize("codec", [*CODECS, *MIXED])
def test_compiled_equals_plain_to_the_last_bit(dtype: torch.dtype, geometry: Geometry, codec: str) -> None:
    for tokens in TOKENS:
        block = make_block(codec=codec, geometry=geometry, tokens=tokens, seed=tokens)
        for start in (0, 77):
            compiled, plain = (place(name, block, start, dtype) for name in ("compiled", "plain"))
            assert same_bytes(compiled.keys, plain.keys), (tokens, start)
            assert same_bytes(compiled.values, plain.values), (tokens, start)


@pytest.mark.parametrize("head_dim", [24, 32, 40, 48, 72, 96, 160, 192, 256])
def test_every_head_dim(head_dim: int) -> None:
    for codec in ("int8", "e5m2", "gse8r", "int4", "int4h", "int3", "int3h", "int5", "int5h", "int6", "int6h"):
        block = make_block(codec=codec, geometry=Geometry(1, 2, head_dim), tokens=67)
        compiled, plain = (place(name, block, 1, torch.bfloat16) for name in ("compiled", "plain"))
        assert same_bytes(compiled.keys, plain.keys), codec
        assert same_bytes(compiled.values, plain.values), codec


@each_dtype
@pytest.mark.parametrize("codec", ["int8", "int4h", "int3+gse8", "int6+int5h", "bf16"])
@pytest.mark.parametrize("layers", [range(1), range(1, 3), range(2, 3), range(3), range(1, 1)], ids=str)
def test_only_the_layers_asked_for(dtype: torch.dtype, codec: str, layers: range) -> None:
    """And nothing is read of the others: they may still be on their way from the disk."""
    block = make_block(codec=codec)
    whole = place("plain", block, 9, dtype)
    untouched = filled_arena(block.header.geometry, 9 + 37 + 3, dtype)
    torn = replace(block, data=block.data.copy())
    size = block.header.layout.layer_bytes
    torn.data[: layers.start * size] = 0xFF
    torn.data[layers.stop * size :] = 0xFF
    for name in ("compiled", "plain"):
        arena = place(name, torn, 9, dtype, layers=layers)
        for layer in range(3):
            expected = whole if layer in layers else untouched
            assert same_bytes(arena.keys[layer], expected.keys[layer])
            assert same_bytes(arena.values[layer], expected.values[layer])


@pytest.mark.parametrize("layers", [range(4), range(-1, 2), range(2, 1), range(0, 3, 2)], ids=str)
@pytest.mark.parametrize("name", ["compiled", "plain"])
def test_layers_that_are_not_there_are_refused(name: str, layers: range) -> None:
    with pytest.raises(ValueError, match="3 layers"):
        place(name, make_block(), 0, torch.bfloat16, layers=layers)


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
    for codec in CODECS:
        limit = {"e4m3": 448.0, "e5m2": 57344.0}.get(codec, 1e38)
        header = replace(base.header, key_codec=codec, value_codec=codec)
        block = encode_block(header, keys.clamp(-limit, limit), values.clamp(-limit, limit))
        compiled, plain = (place(name, block, 100, dtype, scaling=1.3466) for name in ("compiled", "plain"))
        assert same_bytes(compiled.keys, plain.keys), codec
        assert same_bytes(compiled.values, plain.values), codec


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


@pytest.mark.parametrize("codec", [*CODECS, *MIXED])
def test_every_codec_has_a_compiled_loop(codec: str) -> None:
    block = make_block(codec=codec)
    arena = filled_arena(block.header.geometry, 64, torch.float32)
    assert choose_placers().find(block, arena).name == "compiled"


def test_a_float8_code_is_what_its_definition_says() -> None:
    """All 256, also through the plain twin, against arithmetic written down here."""
    for codec, fraction_bits, bias in (("e4m3", 3, 7), ("e5m2", 2, 15)):
        codes = [code for code in range(256) if (code & 127) < (0x7F if codec == "e4m3" else 0x7C)]
        codes += [0] * (-len(codes) % 8)
        block = make_block(codec=codec, geometry=Geometry(1, 1, 8), tokens=len(codes) // 8)
        block.data[: block.header.layout.layer_bytes] = np.tile(np.array(codes, np.uint8), 2)
        expected = []
        for code in codes:
            exponent, fraction = (code & 127) >> fraction_bits, code & ((1 << fraction_bits) - 1)
            leading = fraction / 2**fraction_bits + (exponent > 0)
            expected.append((-1 if code > 127 else 1) * leading * 2.0 ** (max(exponent, 1) - bias))
        for name in ("compiled", "plain"):
            values = place(name, block, 0, torch.float32).values[0, 0, : len(codes) // 8]
            assert values.flatten().tolist() == expected


def test_what_the_loops_cannot_do_goes_to_the_plain_twin() -> None:
    compiled = placer("compiled")
    arena = filled_arena(Geometry(3, 2, 16), 64, torch.float32)
    assert compiled.serves(make_block(), arena)
    assert not compiled.serves(make_block(geometry=Geometry(3, 1, 32)), arena), "another model's block"
    assert not compiled.serves(make_block(), filled_arena(Geometry(3, 2, 16), 64, torch.float16))
    elsewhere = replace(make_block(), device_data=torch.empty(4096, dtype=torch.uint8, device="meta"))
    assert not compiled.serves(elsewhere, arena)


def test_a_block_held_by_a_device_tier_without_a_device() -> None:
    block = make_block(codec="int4+int8")
    held = replace(block, data=np.empty(0, np.uint8), device_data=torch.from_numpy(block.data))
    for name in ("compiled", "plain"):
        assert same_bytes(place(name, held, 3, torch.bfloat16).keys, place(name, block, 3, torch.bfloat16).keys)


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
    assert all(choose_placers(name).reason for name in PLACERS if name != "triton")
    with pytest.raises(DeviceUnavailable, match="auto, triton, compiled, plain"):
        choose_placers("fast")


def test_the_compiled_loops_refuse_a_device() -> None:
    """They would never be used there, and the plain twin without a word."""
    with pytest.raises(DeviceUnavailable, match="serves a CPU only, not cuda:0: use --placer auto"):
        choose_placers("compiled", torch.device("cuda:0"))
    assert choose_placers("compiled", torch.device("cpu")).placers[0].name == "compiled"


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
    codecs = ("int8", "int4h", "e4m3", "int3", "gse8", "int4")
    sizes = zip(codecs, (50, 61, 1, 33, 80, 7), strict=True)
    blocks = [make_block(codec=codec, geometry=geometry, tokens=tokens, seed=tokens) for codec, tokens in sizes]
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
