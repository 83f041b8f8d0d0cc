"""The Triton kernel, interpreted, against the plain twin: the same numbers for every codec, shape and run of layers."""

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
import torch

from models.arena import Arena
from models.errors import DeviceUnavailable
from models.executor import ComputedSource, Executor
from models.placing import PlacerChoice, PlainPlacer, choose_placers
from models.placing.base import Placer
from models.reader import ChunkReader
from models.strategies import find_strategy
from storage.blocks import EncodedBlock, encode_block
from storage.codecs import CODECS
from storage.geometry import Geometry
from tests.models.conftest import load, sample_prompt
from tests.models.interpreted import interpreted_triton
from tests.models.tiny import save_tiny_model
from tests.storage.blocks.builders import make_block

CPU = torch.device("cpu")
DIMS = [16, 64, 80, 96, 128, 8, 24, 40]
PAIRS = ["int8+int4", "int4+int8", "int4+int4h", "int3+int4", "e4m3+e5m2", "bf16+int3h", "gse8r+int8t", "f32+int4h"]
PAIRS += ["int6+int4h", "int5+int6h", "int3+int5"]
START = 7


@pytest.fixture(scope="module")
def choice() -> PlacerChoice:
    return interpreted_triton()


@pytest.fixture(scope="module")
def triton(choice: PlacerChoice) -> Placer:
    return choice.placers[0]


def tables(dim: int, positions: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Cosines and sines with a scaling, as yarn has it; the halves differ, which no rule forbids."""
    speeds = 10000.0 ** -(torch.arange(0, dim) / dim)
    angles = torch.outer(torch.arange(positions).float(), speeds)
    return angles.cos() * 1.3466, angles.sin() * 1.3466


def place(
    placer: Placer, block: EncodedBlock, dtype: torch.dtype, layers: range | None = None, start: int = START
) -> Arena:
    """An arena whose every slot held a number of its own before."""
    geometry, tokens = block.header.geometry, block.header.tokens
    arena = Arena(geometry, dtype, CPU, 4096)
    arena.reserve(start + tokens + 2)
    arena.keys.copy_(torch.linspace(-3, 3, arena.keys.numel()).view(arena.keys.shape))
    arena.values.copy_(torch.linspace(3, -3, arena.values.numel()).view(arena.values.shape))
    assert placer.serves(block, arena)
    placer.place(block, arena, start, *tables(geometry.head_dim, start + tokens), layers)
    return arena


def assert_alike(triton: Placer, block: EncodedBlock, dtype: torch.dtype, layers: range | None = None) -> None:
    placed, expected = (place(placer, block, dtype, layers) for placer in (triton, PlainPlacer()))
    assert torch.equal(placed.keys, expected.keys)
    assert torch.equal(placed.values, expected.values)


@pytest.mark.parametrize("codec", [*CODECS, *PAIRS])
def test_every_codec_and_mixture_is_placed_as_plain_places_it(triton: Placer, codec: str) -> None:
    dim = DIMS[[*CODECS, *PAIRS].index(codec) % len(DIMS)]
    assert_alike(triton, make_block(codec=codec, geometry=Geometry(1, 2, dim), tokens=37), torch.bfloat16)


@pytest.mark.parametrize("dim", [8, 16, 24, 64, 80, 96, 128, 256])
@pytest.mark.parametrize("codec", ["int4", "int3h", "int5+int5h", "int6+int6h"])
def test_packed_rows_of_every_length(triton: Placer, codec: str, dim: int) -> None:
    assert_alike(triton, make_block(codec=codec, geometry=Geometry(1, 1, dim), tokens=33), torch.bfloat16)


@pytest.mark.parametrize("tokens", [1, 31, 32, 63, 64, 65, 130])
def test_short_last_tiles_and_groups(triton: Placer, tokens: int) -> None:
    assert_alike(triton, make_block(codec="int4", geometry=Geometry(1, 1, 32), tokens=tokens), torch.bfloat16)
    assert_alike(triton, make_block(codec="int8", geometry=Geometry(1, 3, 24), tokens=tokens), torch.bfloat16)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=["float32", "float16"])
@pytest.mark.parametrize("codec", ["int8", "int4h", "gse8"])
def test_other_arenas(triton: Placer, dtype: torch.dtype, codec: str) -> None:
    assert_alike(triton, make_block(codec=codec, geometry=Geometry(1, 1, 32), tokens=9), dtype)


@pytest.mark.parametrize("layers", [range(1), range(1, 3), range(2, 3), range(1, 1)])
@pytest.mark.parametrize("kv_heads", [1, 5])
def test_runs_of_layers_and_more_heads_than_one_program_has(triton: Placer, layers: range, kv_heads: int) -> None:
    assert_alike(triton, make_block(geometry=Geometry(3, kv_heads, 16), tokens=5), torch.bfloat16, layers)


def test_rounding_to_bfloat16_is_to_the_nearest_ties_to_even(triton: Placer) -> None:
    """Also of outliers, zeros and denormals; torch's own rounding is the judge."""
    base = make_block(codec="f32", geometry=Geometry(1, 1, 16), tokens=8)
    keys, values = base.decode()
    ties = torch.tensor([0x3F808000, 0x3F818000, 0x3F807FFF, 0x3F808001, 0, 0x00018000, 0x7F7F7FFF, 0x3F800000])
    values[0, 0, :, 0] = ties.to(torch.int32).view(torch.float32)
    values[0, 0, :, 1] = -values[0, 0, :, 0]
    block = encode_block(base.header, keys, values)
    placed = place(triton, block, torch.bfloat16)
    assert torch.equal(placed.values[:, :, START : START + 8], values.to(torch.bfloat16))


def test_a_block_of_device_memory_is_read_where_it_lies(triton: Placer) -> None:
    """Also from layers that begin on no multiple of 16 bytes, which the kernel is compiled for."""
    block = make_block(codec="int8+int4h", geometry=Geometry(3, 3, 24), tokens=13)
    assert block.header.layout.layer_bytes % 16
    resident = replace(block, data=np.empty(0, dtype=np.uint8), device_data=torch.from_numpy(block.data.copy()))
    for layers in (None, range(1, 3)):
        placed, expected = (place(triton, each, torch.bfloat16, layers) for each in (resident, block))
        assert torch.equal(placed.keys, expected.keys)
        assert torch.equal(placed.values, expected.values)


def test_the_blocks_memory_may_be_used_again_at_once(triton: Placer) -> None:
    block = make_block(tokens=21)
    expected = place(PlainPlacer(), block, torch.bfloat16)
    placed = place(triton, block, torch.bfloat16)
    block.data.fill(0xAA)
    assert torch.equal(placed.keys, expected.keys)


@pytest.mark.parametrize("start", [-1, 480, 512])
def test_slots_outside_the_arena_are_refused(triton: Placer, start: int) -> None:
    """The kernel checks no bounds."""
    block = make_block()
    arena = Arena(block.header.geometry, torch.float32, CPU, 4096)
    arena.reserve(64)
    with pytest.raises(ValueError, match="512 slots"):
        triton.place(block, arena, start, *tables(16, 4096))
    with pytest.raises(ValueError, match="layers"):
        triton.place(block, arena, 0, *tables(16, 4096), range(2, 4))
    assert not arena.keys.any()


def test_what_the_kernel_cannot_do_is_left_to_others(triton: Placer) -> None:
    block = make_block()
    assert not triton.serves(block, Arena(Geometry(3, 2, 32), torch.float32, CPU, 64)), "another model's block"
    assert not triton.serves(block, Arena(block.header.geometry, torch.float64, CPU, 64))
    elsewhere = replace(block, device_data=torch.empty(block.data.nbytes, dtype=torch.uint8, device="meta"))
    assert not triton.serves(elsewhere, Arena(block.header.geometry, torch.float32, CPU, 64))


def test_the_switch(choice: PlacerChoice) -> None:
    assert [placer.name for placer in choice.placers] == ["triton", "compiled", "plain"]
    assert choice.reason == "asked for"
    assert [placer.name for placer in choose_placers("auto", CPU).placers] == ["compiled", "plain"]


@pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU is here")
def test_without_a_gpu_it_is_refused_when_asked_for_and_left_out_otherwise() -> None:
    with pytest.raises(DeviceUnavailable, match="needs a CUDA device"):
        choose_placers("triton")
    choice = choose_placers("auto", torch.device("cuda"))
    assert [placer.name for placer in choice.placers] == ["plain"]
    assert "CUDA" in choice.reason


def test_several_threads_place_different_blocks(triton: Placer) -> None:
    geometry = Geometry(2, 1, 16)
    blocks = [make_block(geometry=geometry, tokens=tokens, seed=tokens) for tokens in (5, 40, 1, 33)]
    starts = np.cumsum([0, *(block.header.tokens for block in blocks)]).tolist()
    cos, sin = tables(16, starts[-1])
    arenas = [Arena(geometry, torch.bfloat16, CPU, 4096) for _ in range(2)]
    for arena in arenas:
        arena.reserve(starts[-1])
    barrier = threading.Barrier(len(blocks))

    def work(which: int) -> None:
        barrier.wait()
        triton.place(blocks[which], arenas[0], starts[which], cos, sin)

    with ThreadPoolExecutor(len(blocks)) as threads:
        list(threads.map(work, range(len(blocks))))
    for block, start in zip(blocks, starts, strict=False):
        PlainPlacer().place(block, arenas[1], start, cos, sin)
    assert torch.equal(arenas[0].keys, arenas[1].keys)
    assert torch.equal(arenas[0].values, arenas[1].values)


def test_a_question_through_the_kernel(choice: PlacerChoice, tmp_path_factory: pytest.TempPathFactory) -> None:
    model = load(save_tiny_model(tmp_path_factory.mktemp("triton") / "model"))
    prompt = sample_prompt(model, 2)
    plan = find_strategy("reuse").plan(prompt)
    reader = ChunkReader(model, prompt.head, "head", "int4+int8")
    found = []
    for placers in (choice, choose_placers("plain")):
        executor = Executor(reader, placers)
        try:
            found.append(executor.execute(prompt, plan, ComputedSource(reader, prompt.chunks)).logits)
        finally:
            executor.close()
    assert torch.equal(*found)
