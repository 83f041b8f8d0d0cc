"""`craft`: Cache-Craft (SIGMOD 2025, §3). Tokens that looked outside their chunk when it was computed."""

from models.selection import RecordedMass, Selector
from models.strategies.base import SelectingStrategy


class CraftStrategy(SelectingStrategy):
    name = "craft"

    def selector(self) -> Selector:
        return RecordedMass(self.options.ratio)
