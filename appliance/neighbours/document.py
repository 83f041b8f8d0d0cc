"""What was read just before and just after comes first: it says what a passage's "he" and "there" mean."""

from collections.abc import Iterable, Sequence

from appliance.neighbours.base import NeighbourChooser, Place

REACH = 1


class DocumentChooser(NeighbourChooser):
    """The chunk before, the chunk after, then by similarity. Not in FusionRAG; the lab compares both."""

    name = "document"

    def order(self, place: Place, similar: Sequence[int], document: Sequence[Place]) -> Iterable[int]:
        beside = [other for other in document if 0 < abs(other.ordinal - place.ordinal) <= REACH]
        beside.sort(key=lambda other: (abs(other.ordinal - place.ordinal), other.ordinal))
        return [*(other.chunk_id for other in beside), *similar]
