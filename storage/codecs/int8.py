"""`int8`: one signed byte an element, keys scaled per channel, values per token.

Before rotary a key channel keeps its range over a whole chunk (KIVI, KVQuant), so one scale a channel serves the
block; values have no such channels and take one scale a token. The error is at most half a step of each scale.
"""

import torch

from storage.codecs.base import Codec, Parts, PartSpec, check_finite, check_tensor
from storage.geometry import Geometry

LARGEST_CODE = 127.0


class Int8Codec(Codec):
    """Symmetric: code = round(x / scale), scale = largest magnitude / 127, in float32."""

    name = "int8"

    def key_parts(self, geometry: Geometry, tokens: int) -> tuple[PartSpec, ...]:
        return (
            PartSpec("scale", "F32", (geometry.kv_heads, geometry.head_dim)),
            PartSpec("codes", "I8", (geometry.kv_heads, tokens, geometry.head_dim)),
        )

    def value_parts(self, geometry: Geometry, tokens: int) -> tuple[PartSpec, ...]:
        return (
            PartSpec("scale", "F32", (geometry.kv_heads, tokens)),
            PartSpec("codes", "I8", (geometry.kv_heads, tokens, geometry.head_dim)),
        )

    def encode_keys(self, keys: torch.Tensor) -> Parts:
        return _encode(keys, "keys", axis=2)

    def encode_values(self, values: torch.Tensor) -> Parts:
        return _encode(values, "values", axis=3)

    def decode_keys(self, parts: Parts, geometry: Geometry) -> torch.Tensor:
        return parts["codes"].to(torch.float32) * parts["scale"].unsqueeze(2)

    def decode_values(self, parts: Parts, geometry: Geometry) -> torch.Tensor:
        return parts["codes"].to(torch.float32) * parts["scale"].unsqueeze(3)


def _encode(tensor: torch.Tensor, what: str, axis: int) -> Parts:
    """Scale over `axis` (2: tokens, so per channel; 3: head_dim, so per token) and round to the nearest code."""
    tensor = check_tensor(tensor, what)
    scale = tensor.abs().amax(dim=axis) / LARGEST_CODE
    # A channel of zeros, or one so small that its scale underflows, decodes to zero under any scale.
    scale = torch.where(scale > 0, scale, torch.ones_like(scale))
    check_finite(scale * LARGEST_CODE, what)
    codes = torch.round(tensor / scale.unsqueeze(axis)).clamp_(-LARGEST_CODE, LARGEST_CODE).to(torch.int8)
    return {"scale": scale.contiguous(), "codes": codes.contiguous()}
