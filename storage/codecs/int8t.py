"""`int8t`: one byte an element, one scale and one zero for a layer's keys (or values).

HA-RAG's INT8 (section II-B1; that it is one pair a tensor follows from the ratios of its Table II). An outlier
anywhere in a layer costs every element of it precision; `int8` is the same size and closer.
"""

import torch

from storage.codecs.base import Codec, Parts, PartSpec, check_finite, check_tensor
from storage.geometry import Geometry

LARGEST_CODE = 255.0


class Int8TensorCodec(Codec):
    """Asymmetric: code = round((x - zero) / scale), zero = the least element, scale = range / 255, in float32."""

    name = "int8t"

    def key_parts(self, geometry: Geometry, tokens: int) -> tuple[PartSpec, ...]:
        return (
            PartSpec("scale", "F32", (1,)),
            PartSpec("zero", "F32", (1,)),
            PartSpec("codes", "U8", (geometry.kv_heads, tokens, geometry.head_dim)),
        )

    value_parts = key_parts

    def encode_keys(self, keys: torch.Tensor) -> Parts:
        return _encode(keys, "keys")

    def encode_values(self, values: torch.Tensor) -> Parts:
        return _encode(values, "values")

    def decode_keys(self, parts: Parts, geometry: Geometry) -> torch.Tensor:
        scale, zero = (parts[name].view(-1, 1, 1, 1) for name in ("scale", "zero"))
        return parts["codes"].to(torch.float32) * scale + zero

    decode_values = decode_keys


def _encode(tensor: torch.Tensor, what: str) -> Parts:
    tensor = check_tensor(tensor, what)
    low, high = tensor.flatten(1).aminmax(dim=1, keepdim=True)
    scale = (high - low) / LARGEST_CODE
    scale = torch.where(scale > 0, scale, torch.ones_like(scale))
    check_finite(scale * LARGEST_CODE + low, what)
    codes = ((tensor - low.view(-1, 1, 1, 1)) / scale.view(-1, 1, 1, 1)).round_().clamp_(0, LARGEST_CODE)
    return {"scale": scale, "zero": low.contiguous(), "codes": codes.to(torch.uint8).contiguous()}
