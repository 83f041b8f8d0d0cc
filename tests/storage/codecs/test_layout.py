"""Every pair of codecs in a block: parts aligned, layers aligned, nothing between them."""

import itertools

import pytest

from storage.blocks.layout import ALIGNMENT_BYTES, block_layout
from storage.codecs import CODECS, CodecPair
from storage.codecs.base import DTYPE_BYTES
from storage.geometry import Geometry
from tests.storage.blocks.builders import make_block

GEOMETRIES = [Geometry(2, 1, 8), Geometry(3, 3, 24), Geometry(1, 1, 80), Geometry(5, 2, 64), Geometry(2, 1, 256)]


@pytest.mark.parametrize("geometry", GEOMETRIES, ids=lambda g: f"{g.layers}x{g.kv_heads}x{g.head_dim}")
def test_parts_of_every_pair_lie_on_their_own_width(geometry: Geometry) -> None:
    for keys, values in itertools.product(CODECS, CODECS):
        for tokens in (1, 3, 65):
            layout = block_layout(geometry, tokens, keys, values)
            assert layout.layer_bytes % 4 == 0, (keys, values)
            assert layout.data_bytes % ALIGNMENT_BYTES == 0
            end = 0
            for place in layout.places:
                assert place.offset_bytes == end, "a hole"
                assert place.offset_bytes % DTYPE_BYTES[place.spec.dtype] == 0, (keys, values, place)
                end += place.spec.size_bytes
            assert end == layout.layer_bytes


@pytest.mark.parametrize("keys", CODECS)
def test_keys_and_values_have_codecs_of_their_own(keys: str) -> None:
    """A pair decodes to what either codec alone decodes to, a run of layers to its layers."""
    for values in ("int8", "int4h", "e4m3"):
        block = make_block(codec=CodecPair(keys, values).name)
        expected_keys = make_block(codec=keys).decode()[0]
        expected_values = make_block(codec=values).decode()[1]
        found_keys, found_values = block.decode()
        assert found_keys.equal(expected_keys)
        assert found_values.equal(expected_values)
        some_keys, some_values = block.decode(layers=range(1, 3))
        assert some_keys.equal(expected_keys[1:3])
        assert some_values.equal(expected_values[1:3])


def test_bytes_an_element() -> None:
    """What the codecs are for; head_dim 64, 256 tokens."""
    geometry = Geometry(4, 2, 64)
    sizes = {name: block_layout(geometry, 256, name, name).body_bytes / (2 * geometry.elements(256)) for name in CODECS}
    assert sizes["bf16"] == 2
    assert sizes["int8"] == 1 + (4 / 256 + 4 / 64) / 2
    assert sizes["int4"] == 0.5 + (4 / 64 + 4 / 32) / 2
    assert sizes["int4f"] == 0.5 + (4 / 32 + 4 / 16) / 2
    assert sizes["int4h"] == 0.5 + 4 / 64
    assert sizes["int3h"] == 3 / 8 + 4 / 64
    for bits in (5, 6):
        assert sizes[f"int{bits}"] == bits / 8 + (4 / 64 + 4 / 32) / 2
        assert sizes[f"int{bits}h"] == bits / 8 + 4 / 64
    assert all(1 <= sizes[name] < 1.001 for name in CODECS if name.startswith(("int8t", "e4", "e5", "gse")))
