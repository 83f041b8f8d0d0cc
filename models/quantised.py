"""Weight-only int8 and int4 linear layers on a CPU: quantised as the model is loaded, from its bfloat16 weights.

For the row or few of a decoding step torch's own kernels (`_weight_int8pack_mm`, `_weight_int4pack_mm_for_cpu`) read
the codes: a half or a third of the bytes. For more rows those kernels are two to three times slower than a packed
bfloat16 product, so the same codes are kept as bfloat16 beside them. int8: one scale an output channel; the codes are
exact in bfloat16, the scale is applied after. int4: 16 levels between the least and the largest of each 32 inputs of
a channel, as GGUF's Q4_1 has it, so that weights from such a file lose almost nothing. The slow twin of both is a
plain bfloat16 layer of the same quantised numbers.
"""

import torch
from torch import nn

from models.errors import ModelRefused
from models.packing import PackedLinear

GROUP_INPUTS = 32
_CHANNELS = 16  # the kernel's blocks of output channels
# Up to so many rows torch's kernel is the quicker one.
FEW_ROWS = {"int8": 2, "int4": 4}


class Int8Linear(nn.Module):
    """Codes int8 `[out, in]`, a scale an output channel; input bfloat16 `[…, in]`. `many`: quick for many rows too."""

    def __init__(self, linear: nn.Linear, many: bool = True) -> None:
        super().__init__()
        self.in_features, self.out_features = linear.in_features, linear.out_features
        codes, self._scales = _codes8(linear.weight)
        self._codes = codes.to(torch.int8)
        self._bias = None if linear.bias is None else linear.bias.detach()
        self._many = PackedLinear(_linear(codes.to(torch.bfloat16), None)) if many else None

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        flat = rows.reshape(-1, self.in_features)
        if self._many is not None and len(flat) > FEW_ROWS["int8"]:
            out = self._many(flat).mul_(self._scales)
        else:
            out = torch.ops.aten._weight_int8pack_mm(flat.contiguous(), self._codes, self._scales)
        return _biased(out, self._bias).view(*rows.shape[:-1], self.out_features)


class Int4Linear(nn.Module):
    """Codes 0 … 15, a scale and a zero for each group of inputs of a channel; input bfloat16 `[…, in]`.

    Raises ModelRefused where inputs or outputs do not fill whole groups.
    """

    def __init__(self, linear: nn.Linear, many: bool = True) -> None:
        super().__init__()
        self.in_features, self.out_features = linear.in_features, linear.out_features
        codes, scales, zeros = _codes4(linear.weight)
        shape = linear.weight.shape
        self._codes = torch.ops.aten._convert_weight_to_int4pack_for_cpu(codes.to(torch.int32).view(shape), 1)
        self._scales = torch.stack([scales, zeros], dim=2).transpose(0, 1).contiguous()
        self._bias = None if linear.bias is None else linear.bias.detach()
        plain = _numbers4(codes, scales, zeros).view(shape)
        self._many = PackedLinear(_linear(plain.to(torch.bfloat16), None)) if many else None

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        flat = rows.reshape(-1, self.in_features)
        if self._many is not None and len(flat) > FEW_ROWS["int4"]:
            out: torch.Tensor = self._many(flat)
        else:
            out = torch.ops.aten._weight_int4pack_mm_for_cpu(flat.contiguous(), self._codes, GROUP_INPUTS, self._scales)
        return _biased(out, self._bias).view(*rows.shape[:-1], self.out_features)


QUANTISED: dict[str, type[Int8Linear] | type[Int4Linear]] = {"int8": Int8Linear, "int4": Int4Linear}
"""By the name of `--weights`."""


def plain_twin(linear: nn.Linear, weights: str) -> nn.Linear:
    """An ordinary layer in the dtype of `linear` with the numbers that `weights` makes of it. Raises ModelRefused."""
    if weights == "int8":
        codes, scales = _codes8(linear.weight)
        numbers = codes * scales.to(torch.float32)[:, None]
    else:
        numbers = _numbers4(*_codes4(linear.weight))
    return _linear(numbers.view(linear.weight.shape).to(linear.weight.dtype), linear.bias)


def _codes8(weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Codes -127 … 127 float32 `[out, in]` and scales bfloat16 `[out]`."""
    wide = weight.detach().to(torch.float32)
    scales = (wide.abs().amax(1).clamp(min=1e-12) / 127).to(torch.bfloat16)
    return (wide / scales.to(torch.float32)[:, None]).round_().clamp_(-127, 127), scales


def _codes4(weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Codes 0 … 15 float32 `[out, groups, 32]`, scales and zeros bfloat16 `[out, groups]`; code 8 is the zero."""
    outputs, inputs = weight.shape
    if inputs % GROUP_INPUTS or outputs % _CHANNELS:
        raise ModelRefused(
            f"int4 weights on a CPU need inputs in {GROUP_INPUTS}s and outputs in {_CHANNELS}s, not {inputs} and "
            f"{outputs}: use --weights int8"
        )
    groups = weight.detach().to(torch.float32).view(outputs, -1, GROUP_INPUTS)
    least, most = groups.amin(2), groups.amax(2)
    scales = ((most - least) / 15).clamp(min=1e-12).to(torch.bfloat16)
    zeros = (least + scales.to(torch.float32) * 8).to(torch.bfloat16)
    steps = (groups - zeros.to(torch.float32)[..., None]) / scales.to(torch.float32)[..., None]
    return (steps + 8).round_().clamp_(0, 15), scales, zeros


def _numbers4(codes: torch.Tensor, scales: torch.Tensor, zeros: torch.Tensor) -> torch.Tensor:
    return (codes - 8) * scales.to(torch.float32)[..., None] + zeros.to(torch.float32)[..., None]


def _linear(weight: torch.Tensor, bias: torch.Tensor | None) -> nn.Linear:
    linear = nn.Linear(weight.shape[1], weight.shape[0], bias=False, device="meta")
    linear.weight = nn.Parameter(weight, requires_grad=False)
    if bias is not None:
        linear.bias = nn.Parameter(bias.detach(), requires_grad=False)
    return linear


def _biased(out: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    return out if bias is None else out.add_(bias)
