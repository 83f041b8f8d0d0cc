"""`gse8`: one byte of sign, index of a shared exponent, and a fraction with an explicit leading one.

HA-RAG's GSE-8 (section II-B2, after "group-shared exponents", arXiv 2411.04686). The shared exponents start at the
largest exponent of a layer's keys (or values) and go down by a fixed step. An element takes the smallest one that is
not below its own; the difference is paid in leading zeros of its fraction. Truncating, as the paper has it, or to
the nearest, which halves the error for nothing.
"""

import torch

from storage.codecs.base import Codec, Parts, PartSpec, check_finite, check_tensor
from storage.geometry import Geometry

_BIAS = 127
_FRACTION = 23


class GseCodec(Codec):
    """value = sign * m / 2**fraction_bits * scale / 2**(step * index), with scale = 2**(largest exponent + 1)."""

    def __init__(self, name: str, index_bits: int, fraction_bits: int, step: int, *, rounding: bool = False) -> None:
        if index_bits + fraction_bits != 7:
            raise ValueError(f"{name}: sign, {index_bits} and {fraction_bits} bits are not one byte")
        self.name = name
        self.fraction_bits = fraction_bits
        self.step = step
        self._last = (1 << index_bits) - 1
        self._rounding = rounding

    def key_parts(self, geometry: Geometry, tokens: int) -> tuple[PartSpec, ...]:
        return (
            PartSpec("scale", "F32", (1,)),
            PartSpec("codes", "U8", (geometry.kv_heads, tokens, geometry.head_dim)),
        )

    value_parts = key_parts

    def encode_keys(self, keys: torch.Tensor) -> Parts:
        return self._encode(keys, "keys")

    def encode_values(self, values: torch.Tensor) -> Parts:
        return self._encode(values, "values")

    def decode_keys(self, parts: Parts, geometry: Geometry) -> torch.Tensor:
        codes = parts["codes"].to(torch.int32)
        index = (codes & 127) >> self.fraction_bits
        fraction = (codes & ((1 << self.fraction_bits) - 1)).to(torch.float32)
        power = _power_of_two(-self.fraction_bits - self.step * index)
        return torch.where(codes > 127, -fraction, fraction) * power * parts["scale"].view(-1, 1, 1, 1)

    decode_values = decode_keys

    def _encode(self, tensor: torch.Tensor, what: str) -> Parts:
        tensor = check_tensor(tensor, what)
        mantissa, exponent = torch.frexp(tensor.abs().flatten(1).amax(dim=1, keepdim=True))
        # Exact also among float32's denormals; a layer of zeros has exponent 0 and decodes to zeros.
        scale = check_finite(torch.ldexp(torch.ones_like(mantissa), exponent), what)
        size = tensor.abs() / scale.view(-1, 1, 1, 1)  # exact, in [0, 1): the largest exponent is now -1
        below = _BIAS - 1 - (size.view(torch.int32) >> _FRACTION)
        index = torch.div(below, self.step, rounding_mode="floor").clamp_(0, self._last)
        shifted = size * _power_of_two(self.fraction_bits + self.step * index)
        if self._rounding:
            index, fraction = self._nearest(size, index, shifted.round())
        else:
            fraction = shifted.floor()
        fraction = fraction.to(torch.int32)
        codes = (index << self.fraction_bits) | fraction | ((tensor < 0).to(torch.int32) << 7)
        codes = torch.where(fraction > 0, codes, torch.zeros_like(codes))  # one zero only
        return {"scale": scale, "codes": codes.to(torch.uint8).contiguous()}

    def _nearest(
        self, size: torch.Tensor, index: torch.Tensor, fraction: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Index and fraction of the nearest code. What rounds past its fraction goes to the next larger exponent,
        if that one is nearer than the largest fraction here; above the first there is none."""
        largest = (1 << self.fraction_bits) - 1
        above = (index - 1).clamp_(min=0)
        there = (size * _power_of_two(self.fraction_bits + self.step * above)).round().clamp_(max=largest)
        here = fraction.clamp(max=largest)
        error_there = (there * _power_of_two(-self.fraction_bits - self.step * above) - size).abs()
        error_here = (here * _power_of_two(-self.fraction_bits - self.step * index) - size).abs()
        up = (fraction > largest) & (error_there < error_here)
        return torch.where(up, above, index), torch.where(up, there, here)


def _power_of_two(exponent: torch.Tensor) -> torch.Tensor:
    """2**exponent in float32 for int32 exponents of normal numbers, exactly."""
    return ((exponent + _BIAS) << _FRACTION).view(torch.float32)
