"""`reuse`: every chunk's stored KV moved to its place, only the tail computed.

TurboRAG (EMNLP 2025, §3) with reordered positions; with blocks computed after the head it is FusionRAG's full reuse
(arXiv 2601.12904, §2). Exact for one chunk; several chunks have not seen each other.
"""

from collections.abc import Sequence

from models.prompt import Prompt
from models.selection import ChunkFacts
from models.strategies.base import NOTHING, Origin, Plan, Strategy, lay_out


class ReuseStrategy(Strategy):
    name = "reuse"

    def plan(self, prompt: Prompt, facts: Sequence[ChunkFacts] = ()) -> Plan:
        return Plan(self.name, lay_out(prompt, Origin.HEAD, Origin.BLOCK), NOTHING)
