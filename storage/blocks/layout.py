"""Where every tensor of a block lies in its file: a pure function of geometry, tokens and codecs."""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from storage.buffers import PAGE_BYTES
from storage.codecs import PartSpec, find_codec
from storage.codecs.base import DTYPE_BYTES
from storage.geometry import Geometry

ALIGNMENT_BYTES = PAGE_BYTES
PADDING_NAME = "padding"


@dataclass(frozen=True)
class PartPlace:
    """One part of every layer: `side` is `k` or `v`, `offset_bytes` counts from the beginning of its layer."""

    side: str
    spec: PartSpec
    offset_bytes: int


@dataclass(frozen=True)
class BlockLayout:
    """Layer-major: layer i is the slice `[i * layer_bytes, (i + 1) * layer_bytes)` of the data."""

    geometry: Geometry
    tokens: int
    places: tuple[PartPlace, ...]
    layer_bytes: int
    padding_bytes: int

    @property
    def body_bytes(self) -> int:
        """All layers, without padding."""
        return self.layer_bytes * self.geometry.layers

    @property
    def data_bytes(self) -> int:
        """What follows the header: layers and padding, a multiple of 4 KiB."""
        return self.body_bytes + self.padding_bytes

    def offset_of(self, side: str, name: str) -> int:
        """Bytes from the beginning of a layer to a part, or -1 where the codec has no such part."""
        for place in self.places:
            if place.side == side and place.spec.name == name:
                return place.offset_bytes
        return -1

    def tensor_table(self) -> dict[str, dict[str, Any]]:
        """The safetensors header entries: `layers.{i}.{k|v}.{codes|scale|zero}` and the padding."""
        return dict(_tensor_table(self))


@lru_cache(maxsize=4096)  # a corpus has hundreds of lengths, times the pairs of its profile
def block_layout(geometry: Geometry, tokens: int, key_codec: str, value_codec: str) -> BlockLayout:
    """The layout of a block. Wider parts come first, so that every part begins on a multiple of its own width."""
    parts = [("k", spec) for spec in find_codec(key_codec).key_parts(geometry, tokens)]
    parts += [("v", spec) for spec in find_codec(value_codec).value_parts(geometry, tokens)]
    parts.sort(key=lambda part: -DTYPE_BYTES[part[1].dtype])
    places, offset = [], 0
    for side, spec in parts:
        places.append(PartPlace(side, spec, offset))
        offset += spec.size_bytes
    padding = -(offset * geometry.layers) % ALIGNMENT_BYTES
    return BlockLayout(geometry, tokens, tuple(places), offset, padding)


@lru_cache(maxsize=512)
def _tensor_table(layout: BlockLayout) -> tuple[tuple[str, dict[str, Any]], ...]:
    table = []
    for layer in range(layout.geometry.layers):
        start = layer * layout.layer_bytes
        for place in layout.places:
            begin = start + place.offset_bytes
            entry = {
                "dtype": place.spec.dtype,
                "shape": list(place.spec.shape),
                "data_offsets": [begin, begin + place.spec.size_bytes],
            }
            table.append((f"layers.{layer}.{place.side}.{place.spec.name}", entry))
    padding = {"dtype": "U8", "shape": [layout.padding_bytes], "data_offsets": [layout.body_bytes, layout.data_bytes]}
    table.append((PADDING_NAME, padding))
    return tuple(table)
