"""Small random blocks, their files, and headers that lie but carry a right checksum."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
import xxhash

from storage.blocks import BlockExpectation, BlockHeader, EncodedBlock, encode_block, pack_header
from storage.blocks.header import BLANK_CHECKSUM, LENGTH_BYTES
from storage.blocks.layout import ALIGNMENT_BYTES
from storage.geometry import Geometry

GEOMETRY = Geometry(layers=3, kv_heads=2, head_dim=16)
TOKENS = 37


def tensors(geometry: Geometry = GEOMETRY, tokens: int = TOKENS, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Random keys and values, float32 `[layers, kv_heads, tokens, head_dim]`."""
    generator = torch.Generator().manual_seed(seed)
    shape = (2, geometry.layers, geometry.kv_heads, tokens, geometry.head_dim)
    keys, values = torch.randn(shape, generator=generator)
    return keys, values


def make_block(
    key: str = "a" * 64,
    codec: str = "int8",
    *,
    geometry: Geometry = GEOMETRY,
    tokens: int = TOKENS,
    seed: int = 0,
    generation: int = 0,
) -> EncodedBlock:
    """A random block; the same arguments give the same bytes."""
    key_codec, _, value_codec = codec.partition("+")
    header = BlockHeader(
        key=key,
        fingerprint="f" * 64,
        collection="papers",
        kind="self",
        context="head",
        key_codec=key_codec,
        value_codec=value_codec or key_codec,
        generation=generation,
        tokens=tokens,
        geometry=geometry,
    )
    return encode_block(header, *tensors(geometry, tokens, seed))


def packed_bytes(block: EncodedBlock) -> bytes:
    """The whole file of a block."""
    return pack_header(block.header)[0] + block.data.tobytes()


def expectation(block: EncodedBlock) -> BlockExpectation:
    """What a catalog would know of the block's file."""
    packed, checksum = pack_header(block.header)
    header = block.header
    return BlockExpectation(
        key=header.key,
        fingerprint=header.fingerprint,
        codec=header.codec,
        generation=header.generation,
        tokens=header.tokens,
        size_bytes=len(packed) + block.data.nbytes,
        header_bytes=len(packed),
        header_checksum=checksum,
    )


def write_block(folder: Path, block: EncodedBlock) -> tuple[Path, BlockExpectation]:
    """Write a block's file as the store would name it."""
    path = folder / block.header.file_name
    path.write_bytes(packed_bytes(block))
    return path, expectation(block)


def header_table(raw: bytes) -> dict[str, Any]:
    """The JSON of a packed header."""
    table: dict[str, Any] = json.loads(raw[LENGTH_BYTES:])
    return table


BLANK_FIELD = '"header_xxh3_128":"' + BLANK_CHECKSUM + '"'


def forged_header(table: dict[str, Any]) -> bytes:
    """A header that says what `table` says, padded and with a right checksum of itself."""
    table["__metadata__"]["header_xxh3_128"] = BLANK_CHECKSUM
    return sealed(json.dumps(table, separators=(",", ":")))


def sealed(json_text: str) -> bytes:
    """Any text with a `BLANK_FIELD` in it as a header: length, text, spaces, and the right checksum in that field."""
    text = json_text.encode()
    padded = text + b" " * (-(LENGTH_BYTES + len(text)) % ALIGNMENT_BYTES)
    blank = len(padded).to_bytes(LENGTH_BYTES, "little") + padded
    checksum = xxhash.xxh3_128_hexdigest(blank)
    return blank.replace(BLANK_FIELD.encode(), BLANK_FIELD.replace(BLANK_CHECKSUM, checksum).encode(), 1)


def same_block(found: EncodedBlock, expected: EncodedBlock) -> bool:
    """Whether header and bytes are equal."""
    return found.header == expected.header and np.array_equal(found.data, expected.data)
