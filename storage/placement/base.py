"""The contract of placement: which tier each block deserves. It moves nothing: blocks move when they are asked for."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from types import MappingProxyType

NO_LIMITS: Mapping[str, int] = MappingProxyType({})


class Placement(ABC):
    """An immutable snapshot: every answer is pure, and may be asked for from any thread."""

    @abstractmethod
    def tier_of(self, key: str) -> str:
        """`gpu`, `pinned`, `pageable` or `disk` (used and dropped)."""

    @abstractmethod
    def knows(self, key: str) -> bool:
        """Whether the block was placed on purpose. One that was not takes free room only and evicts nothing."""

    @property
    def budget_blocks(self) -> Mapping[str, int]:
        """How many blocks a tier may hold, by its name; a tier that is not named is bounded by bytes alone."""
        return NO_LIMITS
