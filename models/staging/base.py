"""The contracts of staging: what a placer asks for, and what a device must be able to do for it."""

from abc import ABC, abstractmethod
from typing import Protocol

import numpy as np
import torch


class Staging(ABC):
    """Copies a block's bytes to the device while others are placed. Thread-safe; holds a bounded amount of memory."""

    reason: str
    """Why it copies as it does, one line (shown by benches)."""

    @abstractmethod
    def copy(self, data: np.ndarray) -> torch.Tensor:
        """The bytes uint8 `[n]` on the device, for work queued by this thread from now on.

        When it returns `data` has been read for good: its lease may be released and its memory used again. The copy
        to the device itself may still be under way.
        """


class Sent(Protocol):
    """A copy that was begun."""

    def wait(self) -> None:
        """Block this thread, without the interpreter's lock, until its source has been read."""


class Lane(Protocol):
    """One device's copies. Used by several threads at once."""

    name: str

    def lock(self, size_bytes: int) -> torch.Tensor:
        """Host memory uint8 `[size_bytes]` that the device reads itself. A refusal is a MemoryError or RuntimeError."""

    def is_locked(self, source: torch.Tensor) -> bool:
        """Whether the device reads this host memory itself."""

    def empty(self, size_bytes: int) -> torch.Tensor:
        """Device memory uint8 `[size_bytes]` to send to. Raises torch's RuntimeError where there is none left."""

    def send(self, source: torch.Tensor, target: torch.Tensor) -> Sent:
        """Begin to copy; in the order of the calls."""

    def hand_over(self, target: torch.Tensor) -> None:
        """What this thread queues from now on runs after everything sent so far, and may read `target`."""
