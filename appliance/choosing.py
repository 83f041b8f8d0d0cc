"""Which strategy and which blocks a question gets, and what its answer says of that."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from appliance.block_source import WantedBlock
from appliance.gate import Gate, Gated, gated
from appliance.planner import Decision
from appliance.reply import Question
from models.strategies import STRATEGIES, Plan

HEAD = "head"


@dataclass(frozen=True)
class Choice:
    """A plan over blocks in prompt order. `served` is what the quality gate let through, `decision` the planner's."""

    plan: Plan
    ordered: list[WantedBlock]
    served: Gated
    decision: Decision | None = None

    def told(self) -> dict[str, Any]:
        """What `ask --json` shows as `plan`; chunks by their place in the prompt. Nothing composed is called exact."""
        told: dict[str, Any] = {"choice": self.plan.strategy, "reason": "asked for"}
        if self.decision is not None:
            told = self.decision.as_json()
        elif self.served.asked != self.served.name:
            told["reason"] = "the fastest within the quality bound"
        if self.plan.selector is not None:
            near = [number for number, block in enumerate(self.ordered) if block.near is not None]
            select = self.served.options.select if self.plan.strategy == "fusion" else None
            told |= {"select": select, "ratio": self.served.options.ratio, "near_chunks": near}
        if self.served.reason:
            told["gate"] = {**self.served.as_json(), "carried_out": self.plan.strategy}
        return told


def may_take_near(gate: Gate | None, question: Question) -> bool:
    """Whether blocks behind neighbours need looking up."""
    if question.strategy == "auto":
        return gate is not None and bool(gate.entries)
    return STRATEGIES[question.strategy].near


def through_gate(gate: Gate | None, question: Question, ordered: Sequence[WantedBlock]) -> Gated:
    """What the gate lets through for this question over these blocks; without a gate what was asked for."""
    if gate is None:
        return Gated("reuse" if question.strategy == "auto" else question.strategy, question.options, "", "reuse")
    found = [row for block in ordered for row in (block.row, block.near) if row is not None]
    near = all(block.near is not None for block in ordered[1:])
    return gated(gate, question.strategy, question.options, [row.codec for row in found], near)


def exact_first(ordered: Sequence[WantedBlock], context: str) -> list[WantedBlock]:
    """The same blocks, in prompt order, with the exact prefix before neighbours; `context` is that of `row`s.

    FusionRAG's alternative path (§4.1) taken to its last step, (head, chunk), at once: behind nothing but the head a
    chunk's `head` block is exact, stored or still to be computed, and its block behind neighbours is not.
    """
    return [
        replace(block, near=None) if context == HEAD and place == 0 else block for place, block in enumerate(ordered)
    ]


def without_neighbours(ordered: Sequence[WantedBlock]) -> list[WantedBlock]:
    """Every chunk's own block."""
    return [replace(block, near=None) for block in ordered]
