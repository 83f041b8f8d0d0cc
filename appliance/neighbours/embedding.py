"""Neighbours by similarity alone, as FusionRAG has them (arXiv 2601.12904, §4.1)."""

from collections.abc import Iterable, Sequence

from appliance.neighbours.base import NeighbourChooser, Place


class EmbeddingChooser(NeighbourChooser):
    name = "embedding"

    def order(self, place: Place, similar: Sequence[int], document: Sequence[Place]) -> Iterable[int]:
        return similar
