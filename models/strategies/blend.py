"""`blend`: CacheBlend (EuroSys 2025, §4). Two layers in full, then the tokens that deviate most there."""

from models.selection import Deviation, Selector
from models.strategies.base import SelectingStrategy


class BlendStrategy(SelectingStrategy):
    name = "blend"

    def selector(self) -> Selector:
        return Deviation(self.options.ratio)
