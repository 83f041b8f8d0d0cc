"""`full`: read everything again, as if nothing were stored. The reference for quality and the baseline for speed."""

from collections.abc import Sequence

from models.prompt import Prompt
from models.selection import ChunkFacts
from models.strategies.base import NOTHING, Origin, Plan, Strategy, lay_out


class FullStrategy(Strategy):
    name = "full"

    def plan(self, prompt: Prompt, facts: Sequence[ChunkFacts] = ()) -> Plan:
        return Plan(self.name, lay_out(prompt, Origin.COMPUTE, Origin.COMPUTE), NOTHING)
