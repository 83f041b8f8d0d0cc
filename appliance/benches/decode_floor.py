"""How near a decode step comes to what the memory allows: every weight and every key and value is read once a token."""

from dataclasses import dataclass
from typing import Any

import torch

from appliance.benches.device_rates import memory_bytes_per_s
from models.loading import LanguageModel


@dataclass(frozen=True)
class DecodeFloor:
    """`memory_bytes_per_s` is what a plain copy within the device's memory reads and writes, measured."""

    bytes_per_token: float
    memory_bytes_per_s: float

    @property
    def ms_per_token(self) -> float:
        """No step of one row can be faster."""
        return self.bytes_per_token / self.memory_bytes_per_s * 1e3

    def share(self, ms_per_token: float) -> float:
        """Which share of the memory's rate a step of so many milliseconds reaches."""
        return self.ms_per_token / ms_per_token


def measured_rate(device: torch.device) -> float | None:
    """Bytes a second of the device's own memory; None on a CPU, whose decoding is measured against llama.cpp."""
    return memory_bytes_per_s(device) if device.type == "cuda" else None


def bytes_per_token(model: LanguageModel, context_tokens: float) -> float:
    """Weights of layers, last norm and head, and the KV of so many slots. Of the embedding one row is read: nothing."""
    backbone: Any = model.backbone
    found = {
        parameter.data_ptr(): parameter.numel() * parameter.element_size()
        for module in (model.layers, backbone.norm, model.lm_head)
        for parameter in module.parameters()
    }
    return sum(found.values()) + 2 * model.geometry.elements(1) * context_tokens * model.dtype.itemsize
