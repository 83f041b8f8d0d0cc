"""How far off each codec may be, worked out from its definition; nothing here comes from the code under test."""

import math

import torch

from storage.codecs import Codec
from storage.codecs.float8 import Float8Codec
from storage.codecs.grouped import GroupedCodec
from storage.codecs.gse import GseCodec

TINY = 2.0**-149
"""The smallest float32: a scale down there is itself rounded to a whole number of these."""
BFLOAT16_STEP = 2.0**-7
"""The largest distance of neighbours in bfloat16, relative."""
BFLOAT16_TINY = 2.0**-133


def bound(codec: Codec, side: str, tensor: torch.Tensor) -> torch.Tensor:
    """The largest error allowed, an element. A codec without an entry here has no promise yet: write one down."""
    match codec:
        case GroupedCodec():
            return _grouped(codec, side, tensor)
        case GseCodec():
            return _shared_exponents(codec, tensor)
        case Float8Codec():
            fraction, smallest = (3, 2.0**-9) if codec.name == "e4m3" else (2, 2.0**-16)
            return torch.maximum(tensor.abs() * 2.0 ** -(fraction + 1), torch.tensor(smallest / 2))
    if codec.name == "f32":
        return torch.zeros_like(tensor)
    if codec.name == "bf16":
        return tensor.abs() * 2.0**-8 + 2.0**-134  # half a step of 8 significant bits, also among denormals
    if codec.name == "int8":
        axis = 2 if side == "keys" else 3  # a channel over its tokens, or a token over its channels
        step = tensor.abs().amax(dim=axis, keepdim=True) / 127
        return step * (0.5 + 1e-4) + 64 * TINY
    if codec.name == "int8t":
        step = (tensor.amax(dim=(1, 2, 3), keepdim=True) / 255) - (tensor.amin(dim=(1, 2, 3), keepdim=True) / 255)
        return step * (0.5 + 1e-4) + tensor.abs() * 2.0**-22 + 256 * TINY
    raise NotImplementedError(f"no bound for {codec.name}")


def may_refuse(codec: Codec, tensor: torch.Tensor) -> bool:
    """Whether this codec need not take such large numbers."""
    largest = float(tensor.abs().amax())
    limits = {"f32": 3.5e38, "bf16": 3.38e38, "int8": 3.5e38, "e4m3": 463.9, "e5m2": 61439.0}
    return largest > limits.get(codec.name, 1.6e37)  # a range, or the power of two above, must fit float32


def sylvester(order: int) -> torch.Tensor:
    """The normalised Hadamard matrix in float64."""
    matrix = torch.ones(1, 1, dtype=torch.float64)
    while len(matrix) < order:
        matrix = torch.cat((torch.cat((matrix, matrix), 1), torch.cat((matrix, -matrix), 1)))
    return matrix / math.sqrt(order)


def rotated(tensor: torch.Tensor) -> torch.Tensor:
    """Each block of the last axis, of the largest power of two that divides it, through that matrix; float64."""
    order = next(order for order in (256, 128, 64, 32, 16, 8) if tensor.shape[-1] % order == 0)
    blocks = tensor.double().reshape(*tensor.shape[:-1], -1, order)
    return (blocks @ sylvester(order)).reshape(tensor.shape)


def _grouped(codec: GroupedCodec, side: str, tensor: torch.Tensor) -> torch.Tensor:
    """Half a step of the stored scale: the group's range over its levels, both ends pushed out to bfloat16."""
    levels = 2.0**codec.bits - 1
    if side == "values" and codec.value_group is None:
        whole = rotated(tensor)
        step = _stored_step(whole.amin(-1, keepdim=True), whole.amax(-1, keepdim=True), levels)
        root = next(order for order in (256, 128, 64, 32, 16, 8) if tensor.shape[-1] % order == 0) ** 0.5
        slack = whole.abs().amax(-1, keepdim=True) * 2.0**-17
        return (step * root * (0.5 + 1e-4) + slack).float() + 1024 * TINY
    axis, group = (2, codec.key_group_tokens) if side == "keys" else (3, codec.value_group or 0)
    pieces = []
    for piece in torch.split(tensor.double(), group, dim=axis):
        low, high = piece.amin(axis, keepdim=True), piece.amax(axis, keepdim=True)
        step = _stored_step(low, high, levels)
        pieces.append((step * (0.5 + 1e-4) + low.abs() * 2.0**-20).expand_as(piece))
    return torch.cat(pieces, dim=axis).float() + tensor.abs() * 2.0**-20 + 64 * TINY


def _stored_step(low: torch.Tensor, high: torch.Tensor, levels: float) -> torch.Tensor:
    pushed = high - low + low.abs() * BFLOAT16_STEP + BFLOAT16_TINY
    return pushed / levels * (1 + BFLOAT16_STEP) + BFLOAT16_TINY


def _shared_exponents(codec: GseCodec, tensor: torch.Tensor) -> torch.Tensor:
    """One unit of the fraction (truncating), half of it (rounding), under the smallest shared exponent not below."""
    top = tensor.double().abs().amax(dim=(1, 2, 3), keepdim=True)
    scale = torch.where(top > 0, 2.0 ** (torch.floor(torch.log2(top.clamp(min=1e-300))) + 1), 1.0)
    size = tensor.double().abs()
    exponent = torch.log2(scale).expand_as(size).clone()
    last = 2 ** (7 - codec.fraction_bits) - 1
    for _ in range(last):
        exponent = torch.where(size < 2.0 ** (exponent - codec.step), exponent - codec.step, exponent)
    unit = 2.0 ** (exponent - codec.fraction_bits)
    if not codec.name.endswith("r"):
        return (unit + 64 * TINY).float()
    largest = scale * (1 - 2.0**-codec.fraction_bits)  # above it there is no neighbour
    return (torch.maximum(unit / 2, size - largest) + 64 * TINY).float()
