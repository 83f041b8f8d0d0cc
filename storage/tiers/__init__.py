"""Where blocks are served from."""

from storage.tiers.base import DISK, GPU, MEMORY_TIERS, PAGEABLE, PINNED, Lease, LeaseExpired, Tier, TierState, once
from storage.tiers.destination import Destination
from storage.tiers.in_memory import MemoryTier
from storage.tiers.leases import Leases
from storage.tiers.memory import DeviceMemory, HostMemory, LockedBuffers, Memory, find_memory
from storage.tiers.probing import lock_pages, map_pages, probe_budget, reserve_device, within_limit
from storage.tiers.stack import TierStack

__all__ = [
    "DISK",
    "GPU",
    "MEMORY_TIERS",
    "PAGEABLE",
    "PINNED",
    "Destination",
    "DeviceMemory",
    "HostMemory",
    "Lease",
    "LeaseExpired",
    "Leases",
    "LockedBuffers",
    "Memory",
    "MemoryTier",
    "Tier",
    "TierStack",
    "TierState",
    "find_memory",
    "lock_pages",
    "map_pages",
    "once",
    "probe_budget",
    "reserve_device",
    "within_limit",
]
