"""Asymmetric quantising in groups: x is about code * scale + zero, with scale and zero kept in bfloat16.

bfloat16 rather than float16: its range is float32's, so no model is refused for an outlier, the least element of a
group of a bfloat16 model is kept exactly, and decoding it is a shift. Zero is rounded down and scale up, and codes
are taken against what is stored, so that no element is further off than half a step.
"""

import torch

from storage.codecs.base import check_finite

_LOW_HALF = 0xFFFF


def quantise(
    tensor: torch.Tensor, axis: int, group: int, bits: int, what: str
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Codes uint8 like `tensor`, and scale and zero bfloat16 with `axis` shrunk to its groups; the last may be short.

    Raises BlockRefused where a group's range is more than float32 can hold.
    """
    levels = (1 << bits) - 1
    low, high = _group_ranges(tensor, axis, group)
    zero = _rounded(low, down=True)
    scale = _rounded((high - zero.to(torch.float32)) / levels, down=False)
    scale = torch.where(scale > 0, scale, torch.ones_like(scale))
    check_finite(scale.to(torch.float32) * levels + zero.to(torch.float32), what)
    length = tensor.shape[axis]
    codes = (tensor - spread(zero, axis, group, length)).div_(spread(scale, axis, group, length))
    return codes.round_().clamp_(0, levels).to(torch.uint8), scale.contiguous(), zero.contiguous()


def spread(per_group: torch.Tensor, axis: int, group: int, length: int) -> torch.Tensor:
    """A number a group to float32 with `axis` of `length` elements."""
    if per_group.shape[axis] == 1:
        return per_group.to(torch.float32)
    return per_group.to(torch.float32).repeat_interleave(group, dim=axis).narrow(axis, 0, length)


def _group_ranges(tensor: torch.Tensor, axis: int, group: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The least and the largest element of each group along `axis`."""
    length = tensor.shape[axis]
    whole = length // group * group
    ranges = []
    if whole:
        grouped = (*tensor.shape[:axis], whole // group, group, *tensor.shape[axis + 1 :])
        ranges.append(tensor.narrow(axis, 0, whole).reshape(grouped).aminmax(dim=axis + 1))
    if whole < length:
        ranges.append(tensor.narrow(axis, whole, length - whole).aminmax(dim=axis, keepdim=True))
    return torch.cat([low for low, _ in ranges], dim=axis), torch.cat([high for _, high in ranges], dim=axis)


def _rounded(numbers: torch.Tensor, *, down: bool) -> torch.Tensor:
    """Float32 to bfloat16, never up (or never down)."""
    words = numbers.contiguous().view(torch.int32)
    cut = words & ~_LOW_HALF  # toward zero
    outward = (cut != words) & ((numbers < 0) if down else (numbers > 0))
    return (cut + outward.to(torch.int32) * (_LOW_HALF + 1)).view(torch.float32).to(torch.bfloat16)
