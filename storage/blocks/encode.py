"""From tensors to a block."""

from dataclasses import replace

import numpy as np
import torch
import xxhash

from storage.blocks.base import BlockHeader, EncodedBlock
from storage.codecs import find_codec
from storage.errors import BlockRefused


def encode_block(header: BlockHeader, keys: torch.Tensor, values: torch.Tensor) -> EncodedBlock:
    """Keys before rotary and values, `[layers, kv_heads, tokens, head_dim]`, to a block with its checksums.

    Raises BlockRefused if a tensor is empty, not finite, or has not the header's shape. The same input gives the
    same bytes.
    """
    geometry = header.geometry
    shape = (geometry.layers, geometry.kv_heads, header.tokens, geometry.head_dim)
    for name, tensor in (("keys", keys), ("values", values)):
        if tuple(tensor.shape) != shape:
            raise BlockRefused(f"{name} of shape {tuple(tensor.shape)} are not {shape}: recompute the block")
    parts = {
        "k": find_codec(header.key_codec).encode_keys(keys.cpu()),
        "v": find_codec(header.value_codec).encode_values(values.cpu()),
    }
    layout = header.layout
    data = np.zeros(layout.data_bytes, dtype=np.uint8)
    body = data[: layout.body_bytes].reshape(geometry.layers, layout.layer_bytes)
    for place in layout.places:
        part = parts[place.side][place.spec.name]
        raw = part.reshape(geometry.layers, -1).view(torch.uint8).numpy()
        body[:, place.offset_bytes : place.offset_bytes + place.spec.size_bytes] = raw
    return EncodedBlock(replace(header, layer_checksums=layer_checksums(data, header)), data)


def layer_checksums(data: np.ndarray, header: BlockHeader) -> tuple[str, ...]:
    """XXH3-128 of each layer's slice of `data`, in hexadecimal."""
    size = header.layout.layer_bytes
    view = data.data
    return tuple(
        xxhash.xxh3_128_hexdigest(view[layer * size : (layer + 1) * size]) for layer in range(header.geometry.layers)
    )
