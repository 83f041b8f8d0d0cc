"""Where blocks are served from."""

from storage.tiers.base import Lease, Tier, once
from storage.tiers.pageable import PageableTier

__all__ = ["Lease", "PageableTier", "Tier", "once"]
