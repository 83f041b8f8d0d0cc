"""`epic`: EPIC's LegoLink (ICML 2025, §4). The first tokens of each chunk."""

from models.selection import FirstTokens, Selector
from models.strategies.base import SelectingStrategy


class EpicStrategy(SelectingStrategy):
    name = "epic"

    def selector(self) -> Selector:
        return FirstTokens(self.options.ratio)
