"""How a prompt's KV is put together."""

from models.errors import UnknownStrategy
from models.strategies.base import (
    DEFAULT_RATIO,
    DEFAULT_SELECT,
    Origin,
    Plan,
    Segment,
    SelectingStrategy,
    Strategy,
    StrategyOptions,
)
from models.strategies.blend import BlendStrategy
from models.strategies.craft import CraftStrategy
from models.strategies.epic import EpicStrategy
from models.strategies.full import FullStrategy
from models.strategies.fusion import FusionStrategy
from models.strategies.mixed import mixed_plan
from models.strategies.reuse import ReuseStrategy

STRATEGIES: dict[str, type[Strategy]] = {
    strategy.name: strategy
    for strategy in (FullStrategy, ReuseStrategy, BlendStrategy, CraftStrategy, EpicStrategy, FusionStrategy)
}


def find_strategy(name: str, options: StrategyOptions | None = None) -> Strategy:
    """The strategy of this name. Raises UnknownStrategy naming those that exist."""
    if name not in STRATEGIES:
        raise UnknownStrategy(f"strategy {name!r} is unknown: choose auto, {', '.join(STRATEGIES)}")
    return STRATEGIES[name](options)


__all__ = [
    "DEFAULT_RATIO",
    "DEFAULT_SELECT",
    "STRATEGIES",
    "Origin",
    "Plan",
    "Segment",
    "SelectingStrategy",
    "Strategy",
    "StrategyOptions",
    "find_strategy",
    "mixed_plan",
]
