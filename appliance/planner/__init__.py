"""Never slower than reading again: whether each chunk is loaded or computed, by measured rates."""

from collections.abc import Sequence

from appliance.planner.base import ChunkCost, Decision, Rates
from appliance.planner.choose import choose
from appliance.planner.current import CurrentRates, keep_rates, read_rates
from models.executor import Execution
from models.prompt import Prompt


class Planner:
    """Decides for one engine, and learns from every question it decided for."""

    def __init__(self, measured: Rates) -> None:
        self.current = CurrentRates(measured)

    def decide(self, prompt: Prompt, chunks: Sequence[ChunkCost], again_tokens: int = 0) -> Decision:
        """What to load and what to compute; `chunks` in prompt order, `again_tokens` as in `choose`."""
        return choose(self.current.rates(), len(prompt.head), chunks, len(prompt.tail), again_tokens)

    def observe(self, decision: Decision, execution: Execution) -> None:
        """Tell it how a question went."""
        self.current.observe(decision, execution)


__all__ = ["ChunkCost", "Decision", "Planner", "Rates", "choose", "keep_rates", "read_rates"]
