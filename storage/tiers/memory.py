"""The memories behind the tiers: plain, page-locked, a device's own."""

import ctypes
from abc import ABC, abstractmethod
from contextlib import suppress
from dataclasses import replace
from weakref import finalize

import numpy as np
import torch

from storage.blocks import EncodedBlock
from storage.buffers import AlignedBuffers
from storage.tiers.base import GPU, PAGEABLE

# Locking pages costs more than reading them, so some stay locked for what comes next.
SPARE_LOCKED_BYTES = 64 << 20


class Memory(ABC):
    """Where a tier's bytes lie. A refusal is a MemoryError or a RuntimeError (torch's)."""

    kind: str

    @abstractmethod
    def take(self, size_bytes: int) -> np.ndarray:
        """Host memory to read a block into, uint8 `[size_bytes]`, on a page. May be refused."""

    @abstractmethod
    def give(self, buffer: np.ndarray) -> None:
        """Take back what `take` handed out."""

    @abstractmethod
    def settle(self, block: EncodedBlock) -> EncodedBlock:
        """A block in memory of `take` as this memory holds it; `block` stays whole and its caller's. May be refused."""


class HostMemory(Memory):
    """Blocks stay where they were read to."""

    def __init__(self, buffers: AlignedBuffers, kind: str = "plain RAM") -> None:
        self.kind = kind
        self._buffers = buffers

    def take(self, size_bytes: int) -> np.ndarray:
        return self._buffers.take(size_bytes)

    def give(self, buffer: np.ndarray) -> None:
        self._buffers.give(buffer)

    def settle(self, block: EncodedBlock) -> EncodedBlock:
        return block


class DeviceMemory(HostMemory):
    """Blocks are read into page-locked memory and then copied to the device."""

    def __init__(self, device: torch.device, staging: AlignedBuffers) -> None:
        super().__init__(staging, "device")
        self._device = device

    def settle(self, block: EncodedBlock) -> EncodedBlock:
        moved = torch.empty(block.data.nbytes, dtype=torch.uint8, device=self._device)
        moved.copy_(torch.from_numpy(block.data))
        return replace(block, data=np.empty(0, dtype=np.uint8), buffer=None, device_data=moved)


class LockedBuffers(AlignedBuffers):
    """Page-locked host memory, which a device reads without a copy in between.

    Registered with CUDA rather than taken from torch's own pinned memory, which rounds each size up to a power of two.
    """

    def allocate(self, size_bytes: int) -> np.ndarray:
        """As AlignedBuffers; raises MemoryError where the system locks no more pages."""
        raw = super().allocate(size_bytes)
        self.lock(raw)
        finalize(raw, self.unlock, raw.ctypes.data).atexit = False
        return raw

    def lock(self, raw: np.ndarray) -> None:
        """Lock the array's pages. Raises MemoryError."""
        code = int(torch.cuda.cudart().cudaHostRegister(raw.ctypes.data, raw.nbytes, 0))  # type: ignore[no-untyped-call]
        if code:
            forget_cuda_error()
            raise MemoryError(f"{raw.nbytes} bytes cannot be page-locked (CUDA error {code})")

    @staticmethod
    def unlock(address: int) -> None:
        """Unlock what `lock` locked, before it is freed."""
        if int(torch.cuda.cudart().cudaHostUnregister(address)):  # type: ignore[no-untyped-call]
            forget_cuda_error()


def forget_cuda_error() -> None:
    """Clear the error that the CUDA runtime keeps for this thread: torch would raise it at its next kernel launch.

    torch does not bind cudaGetLastError, so it is looked up in the libraries that torch itself is linked to.
    """
    with suppress(AttributeError):  # a torch without CUDA
        ctypes.CDLL(torch._C.__file__).cudaGetLastError()


def find_memory(tier: str, device: str, plain: AlignedBuffers) -> Memory:
    """The memory of the tier of this name: plain RAM for `pageable`, and for all where there is no such device."""
    if tier == PAGEABLE or not device.startswith("cuda") or not torch.cuda.is_available():
        return HostMemory(plain)
    locked = LockedBuffers(SPARE_LOCKED_BYTES)
    if tier == GPU:
        return DeviceMemory(torch.device(device), locked)
    return HostMemory(locked, "page-locked")
