"""How much memory there is to have: tried where it can be, bounded by the memory limit everywhere."""

import mmap
from collections.abc import Callable

import torch

from storage.tiers.memory import LockedBuffers
from storage.tiers.memory_limit import memory_left_bytes

SMALLEST_BUDGET_BYTES = 16 << 20
"""Below it a tier holds too few blocks to be worth its lookups."""


def probe_budget(wanted_bytes: int, allocate: Callable[[int], None]) -> tuple[int, str]:
    """The first of `wanted_bytes`, its half, its quarter … that `allocate` does not refuse, and a reason.

    `allocate` takes so much memory and gives it back; MemoryError, OSError and RuntimeError (torch's) are refusals.
    """
    size, refusal = wanted_bytes, ""
    while size >= min(SMALLEST_BUDGET_BYTES, wanted_bytes) and size > 0:
        try:
            allocate(size)
        except (MemoryError, OSError, RuntimeError) as error:
            refusal = refusal or str(error).partition("\n")[0] or type(error).__name__
            size //= 2
            continue
        reason = f"{wanted_bytes} bytes were refused ({refusal})" if refusal else "granted as wanted"
        return size, reason
    return 0, f"refused ({refusal})" if refusal else "none wanted"


def within_limit(free_bytes: int) -> int:
    """How much of the computer's free memory the limit of a container or service lets this process take."""
    left = memory_left_bytes()
    return free_bytes if left is None else min(free_bytes, left)


def map_pages(size_bytes: int) -> None:
    """Map so much plain memory, untouched, and let it go. MemoryError where the memory limit leaves less.

    Touching many gigabytes would cost seconds, and the kernel grants a mapping that nobody touched unless it is larger
    than all memory: what is free has to be asked for before.
    """
    _check_limit(size_bytes)
    mmap.mmap(-1, size_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS).close()


def lock_pages(size_bytes: int) -> None:
    """Page-lock so much memory for CUDA and let it go. MemoryError where that, or the memory limit, refuses."""
    _check_limit(size_bytes)
    LockedBuffers(spare_bytes=0).take(size_bytes)


def reserve_device(device: str) -> Callable[[int], None]:
    """An `allocate` that takes so much of a device's memory and lets it go."""

    def allocate(size_bytes: int) -> None:
        torch.empty(size_bytes, dtype=torch.uint8, device=device)
        if device.startswith("cuda"):
            torch.cuda.empty_cache()

    return allocate


def _check_limit(size_bytes: int) -> None:
    left = within_limit(size_bytes)
    if left < size_bytes:
        raise MemoryError(f"the memory limit leaves {left} bytes")
