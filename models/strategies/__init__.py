"""How a prompt's KV is put together."""

from models.errors import UnknownStrategy
from models.strategies.base import Origin, Plan, Segment, Strategy
from models.strategies.full import FullStrategy
from models.strategies.mixed import mixed_plan
from models.strategies.reuse import ReuseStrategy

STRATEGIES: dict[str, Strategy] = {strategy.name: strategy for strategy in (FullStrategy(), ReuseStrategy())}


def find_strategy(name: str) -> Strategy:
    """The strategy of this name. Raises UnknownStrategy naming those that exist."""
    if name not in STRATEGIES:
        raise UnknownStrategy(f"strategy {name!r} is unknown: choose auto, {', '.join(STRATEGIES)}")
    return STRATEGIES[name]


__all__ = ["STRATEGIES", "Origin", "Plan", "Segment", "Strategy", "find_strategy", "mixed_plan"]
