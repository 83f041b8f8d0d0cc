"""The explicit vector code against the plain loops and the plain twin: the same bytes, and nothing else touched."""

import numpy as np
import pytest
import torch

from models.placing import PlainPlacer
from models.placing.compiled import CompiledPlacer
from models.placing.recipes import recipes
from models.placing.vector_loops import fits_vectors
from storage.geometry import Geometry
from tests.models.test_placing import filled_arena, same_bytes, tables
from tests.storage.blocks.builders import make_block

SERVED = ["bf16", "int8", "int6", "int5", "int4", "int3"]
PLACERS = (CompiledPlacer(), CompiledPlacer(vectors=False), PlainPlacer())


def sides_by_vectors(codec: str, head_dim: int) -> list[bool]:
    header = make_block(codec=codec, geometry=Geometry(1, 1, head_dim), tokens=3).header
    found = recipes(header.geometry, header.tokens, header.key_codec, header.value_codec)
    assert found is not None
    return [fits_vectors(recipe, head_dim, rotated) for recipe, rotated in zip(found, (True, False), strict=True)]


@pytest.mark.parametrize("head_dim", [64, 128, 192, 256])
@pytest.mark.parametrize("codec", SERVED)
def test_the_same_bytes_as_both_twins(codec: str, head_dim: int) -> None:
    assert sides_by_vectors(codec, head_dim) == [True, True]
    geometry = Geometry(2, 2, head_dim)
    for tokens, start in ((1, 0), (2, 7), (63, 1), (64, 0), (65, 2), (129, 5)):
        block = make_block(codec=codec, geometry=geometry, tokens=tokens, seed=tokens)
        found = []
        for placer in PLACERS:
            arena = filled_arena(geometry, start + tokens + 3, torch.bfloat16)
            placer.place(block, arena, start, *tables(geometry, start + tokens, scaling=1.3))
            found.append(arena)
        for twin in found[1:]:  # whole arenas: the slots beside are as they were
            assert same_bytes(found[0].keys, twin.keys), (tokens, start)
            assert same_bytes(found[0].values, twin.values), (tokens, start)


@pytest.mark.parametrize("codec", SERVED)
def test_every_code_at_every_place_of_a_row(codec: str) -> None:
    """Random bytes for all codes of a block, so that each bit of each plane is met in both states."""
    geometry = Geometry(1, 1, 64)
    block = make_block(codec=codec, geometry=geometry, tokens=300)
    layout, generator = block.header.layout, np.random.default_rng(3)
    for place in layout.places:
        if place.spec.name == "codes" and codec != "bf16":
            end = place.offset_bytes + place.spec.size_bytes
            block.data[place.offset_bytes : end] = generator.integers(0, 256, place.spec.size_bytes, np.uint8)
    arenas = [filled_arena(geometry, 303, torch.bfloat16) for _ in PLACERS]
    for placer, arena in zip(PLACERS, arenas, strict=True):
        placer.place(block, arena, 1, *tables(geometry, 301))
    assert same_bytes(arenas[0].keys, arenas[2].keys)
    assert same_bytes(arenas[0].values, arenas[2].values)
    assert same_bytes(arenas[1].keys, arenas[2].keys)


@pytest.mark.parametrize(
    ("codec", "head_dim", "expected"),
    [
        ("int5", 32, [False, False]),
        ("int5", 96, [False, False]),
        ("int4h", 64, [True, False]),  # Hadamard values
        ("int4f", 64, [True, False]),  # groups of 16 elements
        ("e4m3", 64, [False, False]),
        ("int8t", 128, [False, False]),
        ("gse8", 64, [False, False]),
        ("f32", 64, [False, False]),
        ("int6+gse8", 64, [True, False]),
    ],
)
def test_what_the_plain_loops_keep(codec: str, head_dim: int, expected: list[bool]) -> None:
    assert sides_by_vectors(codec, head_dim) == expected


def test_the_switch_forces_either(monkeypatch: pytest.MonkeyPatch) -> None:
    used: list[str] = []
    for name in ("place_side", "place_side_by_vectors"):
        monkeypatch.setattr(f"models.placing.compiled.{name}", lambda *arguments, name=name: used.append(name))
    geometry = Geometry(1, 1, 64)
    block = make_block(codec="int5+int4h", geometry=geometry, tokens=3)
    for dtype in (torch.bfloat16, torch.float32):
        for vectors in (True, False):
            arena = filled_arena(geometry, 8, dtype)
            CompiledPlacer(vectors=vectors).place(block, arena, 0, *tables(geometry, 8))
    assert used == ["place_side_by_vectors", *["place_side"] * 7]
