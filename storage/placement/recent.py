"""Placement before any hotness is known: whatever is asked for is kept in plain memory, the latest longest."""

from storage.placement.base import Placement


class RecentPlacement(Placement):
    """Every block deserves `pageable`; there the least recently used goes first."""

    def tier_of(self, key: str) -> str:
        return "pageable"

    def knows(self, key: str) -> bool:
        return True
