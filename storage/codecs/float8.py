"""`e4m3` and `e5m2`: eight-bit floating point without a scale, as HA-RAG stores it (section II-B1)."""

import math

import torch

from storage.codecs.base import Codec, Parts, PartSpec, check_tensor
from storage.errors import BlockRefused
from storage.geometry import Geometry


class Float8Codec(Codec):
    """One part, `codes`: the numbers rounded to the nearest (ties to even). What is too large is refused."""

    def __init__(self, name: str, dtype: torch.dtype, fraction_bits: int) -> None:
        self.name = name
        self.fraction_bits = fraction_bits
        self._dtype = dtype

    def key_parts(self, geometry: Geometry, tokens: int) -> tuple[PartSpec, ...]:
        return (PartSpec("codes", "U8", (geometry.kv_heads, tokens, geometry.head_dim)),)

    value_parts = key_parts

    def encode_keys(self, keys: torch.Tensor) -> Parts:
        return self._encode(keys, "keys")

    def encode_values(self, values: torch.Tensor) -> Parts:
        return self._encode(values, "values")

    def decode_keys(self, parts: Parts, geometry: Geometry) -> torch.Tensor:
        return parts["codes"].view(self._dtype).to(torch.float32)

    decode_values = decode_keys

    def _encode(self, tensor: torch.Tensor, what: str) -> Parts:
        tensor = check_tensor(tensor, what)
        largest = float(tensor.abs().amax())
        last = torch.finfo(self._dtype).max
        half_step = math.ldexp(1, math.frexp(last)[1] - 1 - self.fraction_bits) / 2
        # Past it a number rounds to one that is not there: some torch saturate then, others make NaN.
        if largest >= last + half_step:
            raise BlockRefused(
                f"{what} reach {largest:.4g}, past {self.name}'s {last:.0f}: use another codec for this model"
            )
        return {"codes": tensor.to(self._dtype).view(torch.uint8).contiguous()}
