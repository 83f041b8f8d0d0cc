"""The slow twin of the CUDA lane: plain memory, copies that are done when they return. Also what tests run on."""

import torch


class _Done:
    def wait(self) -> None:
        """Nothing to wait for."""


class PlainLane:
    name = "plain"

    def lock(self, size_bytes: int) -> torch.Tensor:
        return torch.empty(size_bytes, dtype=torch.uint8)

    def is_locked(self, source: torch.Tensor) -> bool:
        return False

    def empty(self, size_bytes: int) -> torch.Tensor:
        return torch.empty(size_bytes, dtype=torch.uint8)

    def send(self, source: torch.Tensor, target: torch.Tensor) -> _Done:
        target.copy_(source)
        return _Done()

    def hand_over(self, target: torch.Tensor) -> None:
        pass
