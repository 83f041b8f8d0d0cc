"""A plan on its way: what was begun, and what carrying it out gave."""

import time
from dataclasses import dataclass, field

import torch

from models.arena import Arena
from models.errors import ModelError
from models.landing import BlockSource, LandingState, Loads
from models.prompt import Prompt
from models.strategies import Plan


class Abandoned(ModelError):
    """What was being carried out is not wanted any more."""


@dataclass
class Execution:
    """What carrying out a plan gave: `logits` float32 `[vocabulary]` after the last row, times in milliseconds.

    `tokens_recomputed` of the computed ones are tokens of placed blocks that the plan's selector chose.

    `tiers` counts chunks by where they came from, `overtaken` those computed because their load took too long.
    `load_ms + place_ms` is the time from the first lease to the last slot placed, shared between both by the threads'
    time in each; a pass that ran meanwhile is in `compute_ms` alone. `shared`: the blocks came while the model computed
    another question, so the times are not those of a question alone.
    """

    logits: torch.Tensor
    tokens_reused: int
    tokens_computed: int
    load_ms: float
    place_ms: float
    compute_ms: float
    tiers: dict[str, int] = field(default_factory=dict)
    overtaken: int = 0
    tokens_recomputed: int = 0
    shared: bool = False


@dataclass(eq=False)
class Begun:
    """A plan whose blocks are on their way into `arena`; `Executor.finish` carries it out."""

    prompt: Prompt
    plan: Plan
    source: BlockSource
    arena: Arena
    loads: Loads
    began_s: float
    abandoned: bool = False

    @property
    def due(self) -> bool:
        """Whether nobody need wait for the blocks: they have landed, or take longer than the plan allows them."""
        late_s = self.plan.overtake_after_ms and self.plan.overtake_after_ms / 1e3
        return self.loads.landed or (late_s is not None and time.perf_counter() - self.began_s > late_s)

    def abandon(self) -> None:
        """From here on no loader writes to the arena, and `finish` ends soon, with Abandoned. Safe to repeat."""
        self.abandoned = True
        self.loads.abandon()


def execution_of(
    logits: torch.Tensor, plan: Plan, loads: Loads, computed: int, wall_ms: float, compute_ms: float
) -> Execution:
    """The result of a plan whose loads took `wall_ms`, shared between loading and placing by the threads' time."""
    landings = list(loads.landings.values())
    tiers: dict[str, int] = {}
    for segment in plan.segments:
        if segment.chunk is not None:
            landed = loads.landings.get(segment)
            name = landed.tier if landed is not None and landed.tier else "computed"
            tiers[name] = tiers.get(name, 0) + 1
    load_s, place_s = sum(landing.load_s for landing in landings), sum(landing.place_s for landing in landings)
    share = load_s / (load_s + place_s) if load_s + place_s else 0.0
    return Execution(
        logits=logits,
        tokens_reused=plan.tokens - computed,
        tokens_computed=computed,
        load_ms=wall_ms * share,
        place_ms=wall_ms * (1 - share),
        compute_ms=compute_ms,
        tiers=tiers,
        overtaken=sum(landing.state is LandingState.OVERTAKEN for landing in landings),
    )
