"""The contract of choosing neighbours. To add a way: a file beside this one, and its name in `plans.CHOOSERS`."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from appliance.settings import MOST_NEIGHBOURS

DEFAULT_NEIGHBOURS = 10


@dataclass(frozen=True)
class NeighbourSettings:
    """`neighbours` at most stand before a chunk, itself not counted; 0 switches the work off.

    Of those, the least similar are left out where all together exceed `tokens` (or the model's window).
    """

    neighbours: int = DEFAULT_NEIGHBOURS
    tokens: int = 4096
    chooser: str = "embedding"

    def __post_init__(self) -> None:
        if not 0 <= self.neighbours <= MOST_NEIGHBOURS:
            raise ValueError(f"neighbours is {self.neighbours}: choose 0 (off) to {MOST_NEIGHBOURS}")
        if self.tokens < 0:
            raise ValueError(f"neighbours may take {self.tokens} tokens: choose 0 or more")


@dataclass(frozen=True)
class Place:
    """A chunk among others: where in which document, the key of its block without neighbours, and its tokens."""

    chunk_id: int
    document_id: str
    ordinal: int
    base_key: str
    tokens: int


@dataclass(frozen=True)
class NearPlan:
    """The neighbours a chunk is to be read behind, first placed first; never none. `context` names their blocks."""

    chunk_id: int
    collection_id: int
    base_key: str
    tokens: int
    neighbour_ids: tuple[int, ...]
    context: str


class NeighbourChooser(ABC):
    """Says which chunks of the same collection should stand before a chunk. Pure: the same input, the same order."""

    name: str

    @abstractmethod
    def order(self, place: Place, similar: Sequence[int], document: Sequence[Place]) -> Iterable[int]:
        """Chunk ids, the most wanted first: it is placed last, next to the chunk, and left out last.

        `similar` are chunks of the collection by falling similarity, `document` all of the chunk's own document in
        reading order. The chunk itself, chunks of its very text and repeats may be among them: the caller drops them.
        """
