"""What `auto` carries out: some chunks loaded, the others computed with the prompt.

A computed chunk attends to everything before it, as in `full`; so this loses no more than `reuse` does. Chunks at the
front are computed while the others load from the end (Cake, arXiv 2410.03065, §3).
"""

from collections.abc import Collection
from dataclasses import replace

from models.prompt import Prompt
from models.strategies.base import NOTHING, Origin, Plan, lay_out


def mixed_plan(
    prompt: Prompt, computed: Collection[int], overtake_after_ms: float, loading: Plan | None = None
) -> Plan:
    """The plan that computes these chunks (indices into `Prompt.chunks`) and has the others from blocks.

    It is called `full` where none comes from a block, else as `loading`, the plan that loads them all (None: `reuse`),
    whose selector it keeps.
    """
    if len(computed) == len(prompt.chunks):
        loading = Plan("full", lay_out(prompt, Origin.HEAD, Origin.BLOCK), NOTHING)
    elif loading is None:
        loading = Plan("reuse", lay_out(prompt, Origin.HEAD, Origin.BLOCK), NOTHING)
    segments = tuple(
        replace(segment, origin=Origin.COMPUTE) if segment.chunk in computed else segment
        for segment in loading.segments
    )
    return replace(loading, segments=segments, overtake_after_ms=overtake_after_ms)
