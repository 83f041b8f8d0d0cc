"""`full`: read everything again, as if nothing were stored. The reference for quality and the baseline for speed."""

from models.prompt import Prompt
from models.strategies.base import NOTHING, Origin, Plan, Strategy, lay_out


class FullStrategy(Strategy):
    name = "full"

    def plan(self, prompt: Prompt) -> Plan:
        return Plan(self.name, lay_out(prompt, Origin.COMPUTE, Origin.COMPUTE), NOTHING)
