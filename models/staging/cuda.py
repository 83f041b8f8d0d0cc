"""Copies to a CUDA device on a stream of their own, so that they overlap the kernels that place what came before."""

import torch


class _Event:
    """Wraps a CUDA event: `synchronize` gives up the interpreter's lock while it waits."""

    def __init__(self, event: torch.cuda.Event) -> None:
        self._event = event

    def wait(self) -> None:
        self._event.synchronize()


class CudaLane:
    """One copy stream of one device.

    Targets are allocated on the copy stream, so the allocator orders their reuse after earlier copies; `hand_over`
    makes the caller's stream wait for the copy and tells the allocator that it reads the target, so that the memory
    is not used again before that stream has passed. Kernels and the model's passes all run on the device's default
    stream (the current one of every thread here): a pass queued after `place` returned sees what it wrote.
    """

    name = "page-locked"

    def __init__(self, device: str) -> None:
        self._device = torch.device(device)
        self._stream = torch.cuda.Stream(self._device)  # type: ignore[no-untyped-call]

    def lock(self, size_bytes: int) -> torch.Tensor:
        return torch.empty(size_bytes, dtype=torch.uint8, pin_memory=True)

    def is_locked(self, source: torch.Tensor) -> bool:
        return source.is_pinned()

    def empty(self, size_bytes: int) -> torch.Tensor:
        with torch.cuda.stream(self._stream):
            return torch.empty(size_bytes, dtype=torch.uint8, device=self._device)

    def send(self, source: torch.Tensor, target: torch.Tensor) -> _Event:
        event = torch.cuda.Event(blocking=True)  # type: ignore[no-untyped-call]
        with torch.cuda.stream(self._stream):
            target.copy_(source, non_blocking=True)
            event.record(self._stream)
        return _Event(event)

    def hand_over(self, target: torch.Tensor) -> None:
        current = torch.cuda.current_stream(self._device)
        current.wait_stream(self._stream)
        target.record_stream(current)
