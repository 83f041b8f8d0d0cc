# mypy: disallow-untyped-decorators=False
"""The last product of a decoding step: one row against every word of the vocabulary (CPU, bfloat16).

It is all reading: the weights are read once, in order, by every thread of torch's team, as fast as memory gives them.
torch's own product of one row reads at half that rate (docs/benchmarks.md). Twin: the plain layer; sums run in another
order here, so a logit may differ in bfloat16's last bit.
"""

# Calls: 92f7fafab9c9
from typing import Any

import numba
import numpy as np
import torch
from numba.np.numpy_support import carray
from torch import nn

from models.attention.llvm import pointer
from models.attention.team import Team
from models.attention.vectors import counted
from models.fused.loops import COMPILE

_AT_ONCE = 512  # words of the vocabulary a thread takes at a time
_JOB = np.dtype([(name, np.int64) for name in ("counter", "words", "inputs", "weight", "row", "logits")])
_F32, _U32 = np.float32, np.uint32


class HeadRow:
    """Logits of one row by a bfloat16 `nn.Linear` without a bias on a CPU, whose memory it shares."""

    def __init__(self, linear: nn.Linear) -> None:
        """Raises OSError where torch's threads cannot be had."""
        self._weight = linear.weight.detach()
        self._team = Team(_take.address or 0)

    def __call__(self, row: torch.Tensor) -> torch.Tensor:
        """float32 `[vocabulary]`, rounded to bfloat16 as the layer's own are, of a row `[inputs]` in bfloat16."""
        words, inputs = self._weight.shape
        wide, logits = row.to(torch.float32).contiguous(), torch.empty(words, dtype=torch.float32)
        taken = np.zeros(1, np.int64)
        addresses = (self._weight.data_ptr(), wide.data_ptr(), logits.data_ptr())
        job = np.array([(taken.ctypes.data, words, inputs, *addresses)], _JOB)
        self._team.run(job.ctypes.data)
        return logits


def find_head_row(head: nn.Module) -> HeadRow | None:
    """The head's own walk where it can be had."""
    if not isinstance(head, nn.Linear) or type(head) is not nn.Linear or head.bias is not None:
        return None
    weight = head.weight
    if weight.dtype is not torch.bfloat16 or weight.device.type != "cpu" or not weight.is_contiguous():
        return None
    try:
        return HeadRow(head)
    except OSError:
        return None


@numba.njit(fastmath={"reassoc", "contract"}, **COMPILE)
def _dot(word: Any, row: Any) -> Any:
    """In whatever order is quickest."""
    total = _F32(0)
    for i in range(row.shape[0]):
        total += _U32(_U32(word[i]) << _U32(16)).view(_F32) * row[i]
    return total


@numba.njit(**COMPILE)
def _some(job: Any, first: int) -> None:
    """The logits of some words, from `first` on."""
    row = carray(pointer(job.row), (job.inputs,), np.float32)
    logits = carray(pointer(job.logits), (job.words,), np.float32)
    for number in range(first, min(first + _AT_ONCE, job.words)):
        total = _dot(carray(pointer(job.weight + number * job.inputs * 2), (job.inputs,), np.uint16), row)
        word = _F32(total).view(_U32)
        nearest = _U32(word + _U32(0x7FFF) + ((word >> _U32(16)) & _U32(1))) & _U32(0xFFFF0000)
        logits[number] = _U32(nearest).view(_F32) if total == total else total


@numba.cfunc("void(voidptr)", cache=True, error_model="numpy")
def _take(data: Any) -> None:
    """What each thread of a team does."""
    job = carray(data, 1, _JOB)[0]
    first = counted(job.counter, 1) * _AT_ONCE
    while first < job.words:
        _some(job, first)
        first = counted(job.counter, 1) * _AT_ONCE
