"""How much memory each tier may take: chosen, or from what the computer has free, tried where it can be.

Imports nothing heavy, so that the command line can read a budget before it loads anything.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import psutil

_UNITS = {"": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12}
_UNITS |= {"kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]*)")
# What is left is for the weights, the arena and everything else on the computer.
PAGEABLE_SHARE = 4
PINNED_SHARE = 8
GPU_SHARE = 2


@dataclass(frozen=True)
class TierBudgets:
    """For `gpu`, `pinned` and `pageable`: bytes, or with `shares` parts of all chunks (HA-RAG: 0.05, 0.05, 0.1)."""

    gpu: float
    pinned: float
    pageable: float
    shares: bool = False


def parse_size(text: str) -> int:
    """Bytes from `4GiB`, `500 MB` or `1000000`. Raises ValueError naming what may stand there."""
    match = _SIZE.fullmatch(text.strip().lower())
    if match is None or match[2] not in _UNITS:
        raise ValueError(f"{text!r} is no size: write 4GiB, 500MB or a number of bytes")
    return int(float(match[1]) * _UNITS[match[2]])


def parse_budgets(text: str) -> TierBudgets:
    """Budgets from `5%,5%,10%` or `4GiB,2GiB,8GiB` (GPU, pinned, pageable). Raises ValueError."""
    parts = [part.strip() for part in text.split(",")]
    if len(parts) != 3:
        raise ValueError(f"{text!r} are {len(parts)} budgets: write three, for GPU, pinned and pageable memory")
    if all(part.endswith("%") for part in parts):
        shares = [_share(part) for part in parts]
        if sum(shares) > 1 + 1e-9:
            raise ValueError(f"{text!r}: shares are at most 100% together")
        return TierBudgets(shares[0], shares[1], shares[2], shares=True)
    gpu, pinned, pageable = (float(parse_size(part)) for part in parts)
    return TierBudgets(gpu, pinned, pageable)


def _share(text: str) -> float:
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*%", text)
    if match is None:
        raise ValueError(f"{text!r} is no share: write 5% or 0%")
    return float(match[1]) / 100


def host_budgets(chosen: TierBudgets | None, chosen_pageable_bytes: int | None) -> tuple[dict[str, int], str]:
    """Bytes for the tiers in the host's memory by name, and the reason. Known before any model is loaded."""
    if chosen is not None and not chosen.shares:
        return {"gpu": int(chosen.gpu), "pinned": int(chosen.pinned), "pageable": int(chosen.pageable)}, "asked for"
    if chosen_pageable_bytes is not None:
        return {"gpu": 0, "pinned": 0, "pageable": chosen_pageable_bytes}, "asked for"
    from storage.tiers.probing import map_pages, probe_budget, within_limit

    wanted = within_limit(psutil.virtual_memory().available) // PAGEABLE_SHARE
    granted, reason = probe_budget(wanted, map_pages)
    if chosen is None:
        return {"gpu": 0, "pinned": 0, "pageable": granted}, f"a quarter of what is free; {reason}"
    # Shares bound the number of blocks; the bytes are shared out alike, so that memory is bounded all the same.
    whole = chosen.gpu + chosen.pinned + chosen.pageable or 1.0
    parts = {"gpu": chosen.gpu, "pinned": chosen.pinned, "pageable": chosen.pageable}
    return {name: int(granted * part / whole) for name, part in parts.items()}, f"shares asked for; {reason}"


def device_budgets(device: Any, free_bytes: Callable[[], int]) -> tuple[dict[str, int], str]:
    """Bytes for `gpu` and `pinned` once a model lies on `device` (a CUDA device), tried by allocating."""
    from storage.tiers.probing import lock_pages, probe_budget, reserve_device, within_limit

    gpu, of_device = probe_budget(free_bytes() // GPU_SHARE, reserve_device(str(device)))
    free_host_bytes = within_limit(psutil.virtual_memory().available)
    pinned, of_host = probe_budget(free_host_bytes // PINNED_SHARE, lock_pages)
    return {"gpu": gpu, "pinned": pinned}, f"half of what the device has free ({of_device}); pinned: {of_host}"
