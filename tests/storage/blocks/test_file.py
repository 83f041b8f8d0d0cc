"""The block file: valid safetensors, aligned, layer-major, and the same block again after reading."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file

from storage.blocks import BlockHeader, block_key, encode_block, pack_header, parse_header, read_block_file
from storage.blocks.encode import layer_checksums
from storage.blocks.layout import ALIGNMENT_BYTES, PADDING_NAME
from storage.buffers import AlignedBuffers
from storage.codecs import CODECS
from storage.errors import BlockRefused, StorageError
from storage.geometry import Geometry
from tests.storage.blocks.builders import GEOMETRY, TOKENS, make_block, packed_bytes, same_block, tensors, write_block

PAIRS = [*CODECS, "f32+int8", "int8+bf16"]
GEOMETRIES = [Geometry(1, 1, 8), Geometry(3, 2, 16), Geometry(5, 3, 40)]

each_pair = pytest.mark.parametrize("codec", PAIRS)
each_geometry = pytest.mark.parametrize("geometry", GEOMETRIES, ids=str)
some_tokens = pytest.mark.parametrize("tokens", [1, 7, 37])


@each_pair
@each_geometry
@some_tokens
def test_the_library_reads_every_tensor(tmp_path: Path, codec: str, geometry: Geometry, tokens: int) -> None:
    block = make_block(codec=codec, geometry=geometry, tokens=tokens)
    path, _ = write_block(tmp_path, block)
    found = load_file(path)
    assert not found.pop(PADDING_NAME).any()
    sides = {"k": block.parts("k"), "v": block.parts("v")}
    assert len(found) == geometry.layers * sum(len(parts) for parts in sides.values())
    for side, parts in sides.items():
        for name, part in parts.items():
            for layer in range(geometry.layers):
                assert torch.equal(found[f"layers.{layer}.{side}.{name}"], part[layer])
    with safe_open(path, "pt") as opened:
        metadata = opened.metadata()
    assert metadata["key"] == block.header.key
    assert metadata["tokens"] == str(tokens)


@each_pair
@each_geometry
@some_tokens
def test_pages_and_layers(codec: str, geometry: Geometry, tokens: int) -> None:
    block = make_block(codec=codec, geometry=geometry, tokens=tokens)
    raw = packed_bytes(block)
    data_at = 8 + int.from_bytes(raw[:8], "little")
    assert data_at % ALIGNMENT_BYTES == 0
    assert len(raw) % ALIGNMENT_BYTES == 0
    layout = block.header.layout
    assert 0 <= layout.padding_bytes < ALIGNMENT_BYTES
    table = json.loads(raw[8:data_at])
    end = 0
    for name, entry in list(table.items())[1:]:
        begin, after = entry["data_offsets"]
        assert begin == end, f"a hole before {name}"
        end = after
        if name != PADDING_NAME:
            layer = int(name.split(".")[1])
            assert layer * layout.layer_bytes <= begin <= after <= (layer + 1) * layout.layer_bytes
    assert end == len(raw) - data_at


@each_pair
def test_a_block_reads_back(tmp_path: Path, codec: str) -> None:
    block = make_block(codec=codec)
    path, expected = write_block(tmp_path, block)
    for direct in (True, False):
        found = read_block_file(path, expected, AlignedBuffers(), direct)
        assert same_block(found, block)
        assert found.header.codec == codec
        for one, other in zip(found.decode(), block.decode(), strict=True):
            assert torch.equal(one, other)
        assert found.size_bytes == expected.size_bytes
        assert found.buffer is not None
        assert found.buffer.ctypes.data % ALIGNMENT_BYTES == 0


def test_f32_gives_back_the_tensors() -> None:
    keys, values = tensors()
    found_keys, found_values = make_block(codec="f32").decode()
    assert torch.equal(found_keys, keys)
    assert torch.equal(found_values, values)


def test_keys_and_values_are_not_mixed_up() -> None:
    keys, values = tensors()
    block = make_block(codec="f32+int8")
    found_keys, found_values = block.decode()
    assert torch.equal(found_keys, keys)
    assert not torch.equal(found_values, values)
    assert float((found_values - values).abs().max()) < 0.05


def test_the_same_block_gives_the_same_bytes() -> None:
    assert packed_bytes(make_block()) == packed_bytes(make_block())
    assert packed_bytes(make_block()) != packed_bytes(make_block(seed=1))


def test_the_header_knows_its_own_checksum() -> None:
    block = make_block()
    packed, checksum = pack_header(block.header)
    header, found = parse_header(packed, "name")
    assert header == block.header
    assert found == checksum
    assert header.layer_checksums == layer_checksums(block.data, block.header)
    assert len(set(header.layer_checksums)) == GEOMETRY.layers


@pytest.mark.parametrize(
    "collection", ["", 'with "quotes" and \\', "日本語 🦆", '"header_xxh3_128":"' + "0" * 32 + '"']
)
def test_any_collection_name_survives(collection: str) -> None:
    header = replace(make_block().header, collection=collection)
    packed, checksum = pack_header(header)
    assert parse_header(packed, "name") == (header, checksum)


def test_a_block_of_another_shape_is_refused() -> None:
    header: BlockHeader = make_block().header
    keys, values = tensors()
    for bad_keys, bad_values in ((keys[:2], values), (keys, values[:, :, 1:]), (keys.transpose(1, 2), values)):
        with pytest.raises(BlockRefused, match="recompute the block"):
            encode_block(header, bad_keys, bad_values)
    with pytest.raises(StorageError, match="zip"):
        encode_block(replace(header, key_codec="zip"), keys, values)


@pytest.mark.parametrize("shape", [(0, 1, 8), (1, 1, 12), (1, 0, 8), (1, 1, -8)])
def test_a_geometry_that_cannot_be_stored_is_refused(shape: tuple[int, int, int]) -> None:
    with pytest.raises(ValueError, match=r"geometry|head_dim"):
        Geometry(*shape)


def test_file_names_tell_codec_and_generation_apart() -> None:
    names = {make_block(codec=codec, generation=number).header.file_name for codec in PAIRS for number in (0, 1)}
    assert len(names) == 2 * len(PAIRS)
    assert make_block().header.file_name == f"{'a' * 64}.int8.0.safetensors"


def test_a_key_depends_on_every_field_and_on_nothing_else() -> None:
    fields = ("print", "papers", "self", "head", [1, 2, 3])
    first = block_key(*fields)
    assert first == block_key("print", "papers", "self", "head", np.array([1, 2, 3], dtype=np.int64))
    assert len(first) == 64
    others = [
        ("prin", "tpapers", "self", "head", [1, 2, 3]),
        ("print", "paper", "self", "head", [1, 2, 3]),
        ("print", "papers", "cross", "head", [1, 2, 3]),
        ("print", "papers", "self", "alone", [1, 2, 3]),
        ("print", "papers", "self", "head", [1, 2, 4]),
        ("print", "papers", "self", "head", [1, 2]),
        ("print", "papers", "self", "head", [3, 2, 1]),
    ]
    assert len({first, *(block_key(*other) for other in others)}) == len(others) + 1


def test_an_unpadded_body_still_has_its_padding_tensor() -> None:
    """Where layers fill whole pages, the padding tensor is empty and the file is as valid as any."""
    geometry = Geometry(4, 1, 64)
    block = make_block(codec="f32", geometry=geometry, tokens=8)
    assert block.header.layout.padding_bytes == 0
    raw = packed_bytes(block)
    assert parse_header(raw[: len(raw) - block.data.nbytes], "name")[0] == block.header
    assert TOKENS % 2, "the other tests use an odd number of tokens"
