"""Capturing a step in a CUDA graph."""

from collections.abc import Callable

import torch

# Kernels are compiled, and libraries take their workspaces, before anything is captured.
_WARMING = 2


class CudaCapture:
    """Captures on a stream of its own; all graphs share one memory pool, as they are replayed one after another.

    Other threads place blocks meanwhile: what they do neither ends up in the graph nor spoils it (`thread_local`).
    """

    def __init__(self, device: torch.device) -> None:
        """Raises RuntimeError where the device or its driver captures nothing at all."""
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._pool = torch.cuda.graph_pool_handle()
        # A pool that lost its last graph cannot be used for another: this one keeps it.
        self._mark = torch.zeros(1, device=device)
        self._keeper = self._captured(self._nothing)

    def __call__(self, step: Callable[[], None]) -> Callable[[], None]:
        """Do the step `_WARMING` times, then capture it. Raises RuntimeError, and the current stream stays."""
        current = torch.cuda.current_stream(self._stream.device)
        self._stream.wait_stream(current)
        with torch.cuda.stream(self._stream):
            for _ in range(_WARMING):
                step()
        current.wait_stream(self._stream)
        replay: Callable[[], None] = self._captured(step).replay
        return replay

    def _nothing(self) -> None:
        self._mark.add_(1)

    def _captured(self, step: Callable[[], None]) -> torch.cuda.CUDAGraph:
        graph = torch.cuda.CUDAGraph()
        # The outer stream: where capturing fails, torch's context leaves its own stream the current one.
        with (
            torch.cuda.stream(torch.cuda.current_stream(self._stream.device)),
            torch.cuda.graph(graph, pool=self._pool, stream=self._stream, capture_error_mode="thread_local"),
        ):
            step()
        return graph
