"""`int4`, `int3` and their variants: few bits an element, asymmetric, in small groups.

Keys per channel over a run of tokens (before rotary a channel keeps its range: KIVI, arXiv 2402.02750); values per
token, in groups along head_dim or, `…h`, over the whole token after a Hadamard rotation.
"""

from dataclasses import dataclass

import torch

from storage.codecs.affine import quantise, spread
from storage.codecs.base import Codec, Parts, PartSpec, check_finite, check_tensor
from storage.codecs.hadamard import rotate_back, rotate_blocks
from storage.codecs.planes import pack, row_bytes, unpack
from storage.geometry import Geometry

_TOKENS, _HEAD_DIM = 2, 3


@dataclass(frozen=True)
class GroupedCodec(Codec):
    """`value_group` counts elements along head_dim; None rotates and keeps one scale and zero a token."""

    name: str
    bits: int
    key_group_tokens: int
    value_group: int | None

    def key_parts(self, geometry: Geometry, tokens: int) -> tuple[PartSpec, ...]:
        groups = -(-tokens // self.key_group_tokens)
        return self._parts(geometry, tokens, (geometry.kv_heads, groups, geometry.head_dim))

    def value_parts(self, geometry: Geometry, tokens: int) -> tuple[PartSpec, ...]:
        groups = -(-geometry.head_dim // (self.value_group or geometry.head_dim))
        return self._parts(geometry, tokens, (geometry.kv_heads, tokens, groups))

    def encode_keys(self, keys: torch.Tensor) -> Parts:
        return self._encode(check_tensor(keys, "keys"), _TOKENS, self.key_group_tokens, "keys")

    def encode_values(self, values: torch.Tensor) -> Parts:
        values = check_tensor(values, "values")
        if self.value_group is None:
            values = check_finite(rotate_blocks(values), "values")
        return self._encode(values, _HEAD_DIM, self.value_group or values.shape[-1], "values")

    def decode_keys(self, parts: Parts, geometry: Geometry) -> torch.Tensor:
        codes = unpack(parts["codes"], self.bits, geometry.head_dim).to(torch.float32)
        scale, zero = (spread(parts[n], _TOKENS, self.key_group_tokens, codes.shape[2]) for n in ("scale", "zero"))
        return codes * scale + zero

    def decode_values(self, parts: Parts, geometry: Geometry) -> torch.Tensor:
        codes = unpack(parts["codes"], self.bits, geometry.head_dim).to(torch.float32)
        if self.value_group is None:
            return rotate_back(codes, parts["scale"].to(torch.float32), parts["zero"].to(torch.float32))
        scale, zero = (spread(parts[n], _HEAD_DIM, self.value_group, codes.shape[3]) for n in ("scale", "zero"))
        return codes * scale + zero

    def _parts(self, geometry: Geometry, tokens: int, groups: tuple[int, ...]) -> tuple[PartSpec, ...]:
        packed = (geometry.kv_heads, tokens, row_bytes(geometry.head_dim, self.bits))
        return PartSpec("scale", "BF16", groups), PartSpec("zero", "BF16", groups), PartSpec("codes", "U8", packed)

    def _encode(self, tensor: torch.Tensor, axis: int, group: int, what: str) -> Parts:
        codes, scale, zero = quantise(tensor, axis, group, self.bits, what)
        return {"scale": scale, "zero": zero, "codes": pack(codes, self.bits)}
