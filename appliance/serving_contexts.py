"""Which stored block serves each chunk of a prompt, and where that is just what reading the prompt would give.

The store keeps one block of a chunk behind the head, and at most one behind neighbours, whatever prompts it stood in:
FusionRAG's alternative path (section 4.1) taken to its last step, (head, chunk), at once. So only the first chunk of a
prompt can match its exact prefix.
"""

from collections.abc import Sequence
from dataclasses import replace

from appliance.block_source import WantedBlock
from storage.contexts import is_near

HEAD, EXACT, NEAR, ABSENT = "head", "exact", "near", "absent"


def exact_first(ordered: Sequence[WantedBlock], context: str) -> list[WantedBlock]:
    """The same blocks, in prompt order, with the exact prefix before neighbours; `context` is that of `row`s.

    Behind nothing but the head a chunk's `head` block is exact, stored or still to be computed, and its block behind
    neighbours is not: it is not served there. Every later chunk keeps what it has.
    """
    return [
        replace(block, near=None) if context == HEAD and place == 0 else block for place, block in enumerate(ordered)
    ]


def serving_contexts(ordered: Sequence[WantedBlock]) -> list[str]:
    """What serves each chunk, in prompt order: `exact`, `near`, `head`, `alone`, or `absent` where no block is ready.

    `exact`: the block attended to just what stands before the chunk now; the codec's rounding is not spoken of, and
    one such chunk makes no answer exact.
    """
    return [_kind(block, first=place == 0) for place, block in enumerate(ordered)]


def _kind(block: WantedBlock, first: bool) -> str:
    if block.served is None:
        return ABSENT
    context = block.served.context
    if first and context == HEAD:
        return EXACT
    return NEAR if is_near(context) else context
