"""Staging through a few page-locked slots: a thread fills one while the device still reads another."""

from dataclasses import dataclass
from queue import SimpleQueue

import numpy as np
import torch

from models.staging.base import Lane, Sent, Staging

SLOTS = 4
SLOT_BYTES = 4 << 20


@dataclass
class _Slot:
    memory: torch.Tensor
    sent: Sent | None = None
    """The last copy out of this slot; it is filled again only when that has ended."""


class SlotStaging(Staging):
    """2 to 4 slots of `slot_bytes`. Memory that is page-locked already is sent as it lies, without a slot.

    Where page-locked memory is refused there are fewer slots, or none: then the driver copies from plain memory,
    slower, and `reason` says so. A thread holds one slot at a time: loaders never wait for each other in a ring.
    """

    def __init__(self, lane: Lane, slots: int = SLOTS, slot_bytes: int = SLOT_BYTES) -> None:
        if slots < 2 or slot_bytes < 1:
            raise ValueError(f"{slots} slots of {slot_bytes} bytes cannot overlap a copy: use 2 to 4")
        self._lane = lane
        self._slot_bytes = slot_bytes
        self._free: SimpleQueue[_Slot] = SimpleQueue()
        self.slots = 0
        self.reason = f"{slots} {lane.name} slots of {slot_bytes} bytes"
        for _ in range(slots):
            try:
                memory = lane.lock(slot_bytes)
            except (MemoryError, RuntimeError) as refusal:
                why = str(refusal).partition("\n")[0] or type(refusal).__name__
                self.reason = f"{self.slots} of {slots} {lane.name} slots, the rest was refused ({why})"
                break
            self._free.put(_Slot(memory))
            self.slots += 1

    def copy(self, data: np.ndarray) -> torch.Tensor:
        source = torch.from_numpy(data)
        target = self._lane.empty(data.nbytes)
        if not self.slots or self._lane.is_locked(source):
            self._lane.send(source, target).wait()  # the source is its lease's: it must have been read on return
        else:
            for begin in range(0, data.nbytes, self._slot_bytes):
                end = min(begin + self._slot_bytes, data.nbytes)
                self._send_through_slot(source[begin:end], target[begin:end])
        self._lane.hand_over(target)
        return target

    def _send_through_slot(self, source: torch.Tensor, target: torch.Tensor) -> None:
        """The slot that was used longest ago is taken: its copy has ended or will first."""
        slot = self._free.get()
        try:
            if slot.sent is not None:
                slot.sent.wait()
            filled = slot.memory[: len(source)]
            # numpy copies on this thread alone, without the interpreter's lock; torch would wake its whole pool.
            np.copyto(filled.numpy(), source.numpy())
            slot.sent = self._lane.send(filled, target)
        finally:
            self._free.put(slot)
