"""What a KV block is in memory."""

from dataclasses import dataclass

import numpy as np
import torch

from storage.blocks.layout import BlockLayout, block_layout
from storage.buffers import capacity_bytes
from storage.codecs import CodecPair, find_codec
from storage.codecs.base import TORCH_DTYPES
from storage.geometry import Geometry

FORMAT_VERSION = "1"


@dataclass(frozen=True)
class BlockHeader:
    """What a block file says of itself. `layer_checksums` are XXH3-128 of each layer's bytes, in hexadecimal.

    `neighbours`: the keys of the blocks that stood before the chunk when it was read (context `near:…`), in order.
    """

    key: str
    fingerprint: str
    collection: str
    kind: str
    context: str
    key_codec: str
    value_codec: str
    generation: int
    tokens: int
    geometry: Geometry
    layer_checksums: tuple[str, ...] = ()
    neighbours: tuple[str, ...] = ()

    @property
    def codec(self) -> str:
        """`int8`, or `int4+int8` where keys and values differ: the name in file names and catalog rows."""
        return CodecPair(self.key_codec, self.value_codec).name

    @property
    def file_name(self) -> str:
        """The same block encoded again gets the same name; another codec or generation another one."""
        return f"{self.key}.{self.codec}.{self.generation}.safetensors"

    @property
    def layout(self) -> BlockLayout:
        return block_layout(self.geometry, self.tokens, self.key_codec, self.value_codec)


@dataclass(frozen=True)
class EncodedBlock:
    """A block as it lies in its file: `data` is uint8 `[layout.data_bytes]`, layers first, then padding."""

    header: BlockHeader
    data: np.ndarray
    buffer: np.ndarray | None = None
    """The whole reusable buffer that `data` lies in, where there is one (see AlignedBuffers)."""
    device_data: torch.Tensor | None = None
    """The same bytes on a device, uint8 `[layout.data_bytes]`; then `data` is empty: nothing is held twice."""

    @property
    def size_bytes(self) -> int:
        """Memory held by the block: of a buffer all that was allocated for it."""
        if self.device_data is not None:
            return self.device_data.nbytes
        return self.data.nbytes if self.buffer is None else capacity_bytes(self.buffer.nbytes)

    def parts(self, side: str, layers: range | None = None) -> dict[str, torch.Tensor]:
        """The parts of the keys (`k`) or values (`v`), each `[layers, …]`, as views of `data` where possible.

        `layers`, if given, is a run of them: nothing else of `data` is looked at.
        """
        layout = self.header.layout
        run = range(layout.geometry.layers) if layers is None else layers
        whole = torch.from_numpy(self.data) if self.device_data is None else self.device_data
        body = whole[: layout.body_bytes].view(layout.geometry.layers, layout.layer_bytes)[run.start : run.stop]
        found = {}
        for place in layout.places:
            if place.side == side:
                slab = body[:, place.offset_bytes : place.offset_bytes + place.spec.size_bytes].contiguous()
                found[place.spec.name] = slab.view(TORCH_DTYPES[place.spec.dtype]).view(len(run), *place.spec.shape)
        return found

    def decode(
        self, device: torch.device | None = None, layers: range | None = None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Keys before rotary and values, float32 `[layers, kv_heads, tokens, head_dim]`; the plain, slow way.

        The codes are moved to `device` first: they are the smaller part. `layers` as in `parts`.
        """
        keys, values = (
            {name: part.to(device or "cpu") for name, part in self.parts(side, layers).items()} for side in ("k", "v")
        )
        geometry = self.header.geometry
        return (
            find_codec(self.header.key_codec).decode_keys(keys, geometry),
            find_codec(self.header.value_codec).decode_values(values, geometry),
        )
