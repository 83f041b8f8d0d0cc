"""Time from before the first lease to the last slot placed, also where placing is only queued on a GPU."""

import time

import torch


class Stopwatch:
    """Runs from its making; any thread may mark. On a GPU marks wait in the stream, and nobody waits for them.

    There blocks are placed on the device's default stream (see models/placing/triton_placing.py), so a mark is passed
    as soon as everything that was queued before it is done.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._events: list[torch.cuda.Event] = []
        self._times = [time.perf_counter()]
        if device.type == "cuda":
            self.mark()

    def mark(self) -> None:
        """Something was done, or queued to be done."""
        if self._device.type == "cuda":
            event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
            event.record(torch.cuda.current_stream(self._device))
            self._events.append(event)
        else:
            self._times.append(time.perf_counter())

    def last_ms(self) -> float:
        """Milliseconds to the last mark; on a GPU once it has been waited for."""
        if self._events:
            return max(float(self._events[0].elapsed_time(event)) for event in self._events)
        return (max(self._times) - self._times[0]) * 1e3
