"""Which chunk tokens are computed again with the question."""

from models.selection.base import ChunkFacts, Selected, Selector, Stitched
from models.selection.deviation import Deviation
from models.selection.first_tokens import FirstTokens
from models.selection.query_guided import SELECTS, LastLayer, PaperSelect, SpreadLayers, query_guided
from models.selection.recorded import RecordedMass

__all__ = [
    "SELECTS",
    "ChunkFacts",
    "Deviation",
    "FirstTokens",
    "LastLayer",
    "PaperSelect",
    "RecordedMass",
    "Selected",
    "Selector",
    "SpreadLayers",
    "Stitched",
    "query_guided",
]
