"""Codecs that keep the numbers as they are: `f32` (tests) and `bf16` (what the model itself computes in)."""

import torch

from storage.codecs.base import TORCH_DTYPES, Codec, Parts, PartSpec, check_finite, check_tensor
from storage.geometry import Geometry


class PlainCodec(Codec):
    """One part, `codes`: the tensor itself in the codec's dtype."""

    def __init__(self, name: str, dtype: str) -> None:
        self.name = name
        self._dtype = dtype

    def key_parts(self, geometry: Geometry, tokens: int) -> tuple[PartSpec, ...]:
        return (PartSpec("codes", self._dtype, (geometry.kv_heads, tokens, geometry.head_dim)),)

    value_parts = key_parts

    def encode_keys(self, keys: torch.Tensor) -> Parts:
        return self._encode(keys, "keys")

    def encode_values(self, values: torch.Tensor) -> Parts:
        return self._encode(values, "values")

    def decode_keys(self, parts: Parts, geometry: Geometry) -> torch.Tensor:
        return parts["codes"].to(torch.float32)

    decode_values = decode_keys

    def _encode(self, tensor: torch.Tensor, what: str) -> Parts:
        codes = check_tensor(tensor, what).to(TORCH_DTYPES[self._dtype])
        return {"codes": check_finite(codes, what).contiguous()}
