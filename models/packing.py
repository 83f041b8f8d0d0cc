"""Linear layers with weights packed once for the processor's matrix kernels (oneDNN), instead of at every call.

torch's plain bfloat16 `linear` on a CPU reorders the weights each time it is called; for the few rows of a question
that costs more than the product. Packed weights give the same result (tests/models/test_packing.py) in about 60% of the
time at 25 rows and 85% at 1,750 (docs/benchmarks.md). The plain layer is the slow twin.
"""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from models.errors import DeviceUnavailable

LINEARS = ("auto", "packed", "plain")
_PACKED_ROWS = 32  # the number of rows the packing is laid out for: about a question's
_PROBE = (24, 64, 96)  # rows, inputs, outputs


class PackedLinear(nn.Module):
    """Stands in for an `nn.Linear` in bfloat16 on a CPU; its input is `[…, in_features]`."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.in_features, self.out_features = linear.in_features, linear.out_features
        with torch.inference_mode():
            self._packed = torch.ops.mkldnn._reorder_linear_weight(linear.weight.detach(), _PACKED_ROWS)
        self._bias = None if linear.bias is None else linear.bias.detach()

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        packed: torch.Tensor = torch.ops.mkldnn._linear_pointwise(rows, self._packed, self._bias, "none", [], "")
        return packed


class JointLinear(nn.Module):
    """Several `nn.Linear` of one input as one product, their outputs beside each other; `make` makes the layer."""

    def __init__(self, linears: Sequence[nn.Linear], make: Callable[[nn.Linear], nn.Module]) -> None:
        super().__init__()
        self._sizes = [linear.out_features for linear in linears]
        whole = nn.Linear(linears[0].in_features, sum(self._sizes), bias=linears[0].bias is not None, device="meta")
        whole.weight = nn.Parameter(torch.cat([linear.weight.detach() for linear in linears]), requires_grad=False)
        biases = [linear.bias.detach() for linear in linears if linear.bias is not None]
        if biases:
            whole.bias = nn.Parameter(torch.cat(biases), requires_grad=False)
        self.whole = make(whole)
        self._last = threading.local()

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        product: torch.Tensor = self.whole(rows)
        return product

    def part(self, rows: torch.Tensor, index: int) -> torch.Tensor:
        """One layer's output. Computed for all when one asks; kept until the last has asked with the same rows."""
        last = getattr(self._last, "product", None)
        parts = last[1] if last is not None and last[0] is rows else self.whole(rows).split(self._sizes, -1)
        self._last.product = (rows, parts) if index + 1 < len(parts) else None
        found: torch.Tensor = parts[index]
        return found


class JointPart(nn.Module):
    """Stands in for one of the layers of a `JointLinear`."""

    def __init__(self, joint: JointLinear, index: int) -> None:
        super().__init__()
        self.joint, self._index = joint, index

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        return self.joint.part(rows, self._index)


def join_linears(layers: nn.ModuleList, make: Callable[[nn.Linear], nn.Module]) -> None:
    """Join queries, keys and values, and gate and up, of every decoder layer; `make` makes all its linear layers."""
    for layer in layers:
        attention: Any = layer.self_attn
        mlp: Any = layer.mlp
        for owner, names in ((attention, ("q_proj", "k_proj", "v_proj")), (mlp, ("gate_proj", "up_proj"))):
            joint = JointLinear([getattr(owner, name) for name in names], make)
            for index, name in enumerate(names):
                setattr(owner, name, JointPart(joint, index))
        attention.o_proj, mlp.down_proj = make(attention.o_proj), make(mlp.down_proj)


@dataclass(frozen=True)
class LinearChoice:
    """Whether linear layers are packed, and why."""

    name: str
    reason: str


def choose_linears(asked: str, device: torch.device, dtype: torch.dtype, weights: str) -> LinearChoice:
    """`auto` packs where a probe shows that it works and gives the same bits. Raises DeviceUnavailable."""
    if asked not in LINEARS:
        raise DeviceUnavailable(f"linears {asked!r} are unknown: choose one of {', '.join(LINEARS)}")
    if device.type == "cpu" and weights != "bf16" and dtype != torch.bfloat16:
        raise DeviceUnavailable(f"{weights} weights on a CPU need a model in bfloat16: use --weights bf16")
    if asked == "plain":
        return LinearChoice("plain", "asked for")
    why_not = _why_not(device, dtype)
    if why_not is None:
        return LinearChoice("packed", "oneDNN packs, and a probe gave the same bits")
    if asked == "packed":
        raise DeviceUnavailable(f"packed linears cannot be used ({why_not}): use --linears plain")
    return LinearChoice("plain", why_not)


def pack_linears(layers: nn.Module) -> int:
    """Replace every `nn.Linear` below `layers`, freeing its plain weights; returns how many."""
    packed = 0
    for module in list(layers.modules()):
        for name, child in list(module.named_children()):
            if type(child) is nn.Linear:
                setattr(module, name, PackedLinear(child))
                packed += 1
    return packed


def _why_not(device: torch.device, dtype: torch.dtype) -> str | None:
    if device.type != "cpu" or dtype != torch.bfloat16:
        return "only bfloat16 weights on a CPU are packed"
    rows, inputs, outputs = _PROBE
    linear = nn.Linear(inputs, outputs, dtype=dtype).requires_grad_(False)
    sample = torch.linspace(-2, 2, rows * inputs).reshape(1, rows, inputs).to(dtype)
    try:
        same = torch.equal(PackedLinear(linear)(sample), linear(sample))
    except (RuntimeError, AttributeError, NotImplementedError) as error:
        return f"torch cannot pack here: {str(error).splitlines()[0]}"
    return None if same else "packed layers gave other numbers here"
