"""Which tier a block should be in."""

from storage.placement.base import Placement
from storage.placement.by_rank import PAPER_SHARES, RankedPlacement, Shares, place_by_bytes, place_by_shares
from storage.placement.recent import RecentPlacement

__all__ = [
    "PAPER_SHARES",
    "Placement",
    "RankedPlacement",
    "RecentPlacement",
    "Shares",
    "place_by_bytes",
    "place_by_shares",
]
