"""The contract of a codec: how the keys or the values of one block become bytes, and back.

A codec's name is stored in files and is for ever. Its parts are tensors with a leading layer axis, so that a file
can hold each layer in one slice. To add one: write a file beside this one, add it to `CODECS` in `__init__.py`,
and the parametrised tests of `tests/storage/codecs/` take it up.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass

import torch

from storage.errors import BlockRefused
from storage.geometry import Geometry

Parts = Mapping[str, torch.Tensor]


@dataclass(frozen=True)
class PartSpec:
    """One part of one layer: its name in the file, its safetensors dtype, its shape without the layer axis."""

    name: str
    dtype: str
    shape: tuple[int, ...]

    @property
    def size_bytes(self) -> int:
        count = 1
        for length in self.shape:
            count *= length
        return count * DTYPE_BYTES[self.dtype]


DTYPE_BYTES = {"F32": 4, "BF16": 2, "I8": 1, "U8": 1}
TORCH_DTYPES = {"F32": torch.float32, "BF16": torch.bfloat16, "I8": torch.int8, "U8": torch.uint8}


class Codec(ABC):
    """Encodes `[layers, kv_heads, tokens, head_dim]`. Pure: changes nothing, keeps nothing."""

    name: str

    @abstractmethod
    def key_parts(self, geometry: Geometry, tokens: int) -> tuple[PartSpec, ...]:
        """The parts of one layer's keys. Depends on nothing but its arguments."""

    @abstractmethod
    def value_parts(self, geometry: Geometry, tokens: int) -> tuple[PartSpec, ...]:
        """The parts of one layer's values."""

    @abstractmethod
    def encode_keys(self, keys: torch.Tensor) -> Parts:
        """Keys (before rotary) to parts, each with a leading layer axis. Raises BlockRefused, see `check_tensor`."""

    @abstractmethod
    def encode_values(self, values: torch.Tensor) -> Parts:
        """Values to parts, each with a leading layer axis. Raises BlockRefused."""

    @abstractmethod
    def decode_keys(self, parts: Parts, geometry: Geometry) -> torch.Tensor:
        """Parts to float32 `[layers, kv_heads, tokens, head_dim]`; the slow twin of the compiled loops.

        Of the geometry only kv_heads and head_dim count: the parts may be those of some layers.
        """

    @abstractmethod
    def decode_values(self, parts: Parts, geometry: Geometry) -> torch.Tensor:
        """Parts to float32 `[layers, kv_heads, tokens, head_dim]`."""


def check_finite(encoded: torch.Tensor, what: str) -> torch.Tensor:
    """The encoded tensor; refused if its dtype could not hold a number (float32's largest are infinite in bf16)."""
    if not bool(torch.isfinite(encoded).all()):
        raise BlockRefused(f"{what} hold numbers too large for their codec: use another codec for this model")
    return encoded


def check_tensor(tensor: torch.Tensor, what: str) -> torch.Tensor:
    """The tensor in float32; refused here, at encode, if empty or not finite, so that a load never has to."""
    if tensor.ndim != 4:
        raise BlockRefused(f"{what} have {tensor.ndim} axes, not [layers, kv_heads, tokens, head_dim]: recompute them")
    if tensor.numel() == 0:
        raise BlockRefused(f"{what} of shape {tuple(tensor.shape)} are empty: nothing to store")
    wide = tensor.to(torch.float32)
    if not bool(torch.isfinite(wide).all()):
        raise BlockRefused(f"{what} hold infinite or undefined numbers: use another dtype for this model")
    return wide
