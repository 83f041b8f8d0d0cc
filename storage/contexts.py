"""Names of a block's context: what the chunk attended to when it was computed (DESIGN.md §3). Loads nothing."""

import hashlib
from collections.abc import Sequence

NEAR_PREFIX = "near:"
_DIGEST_DIGITS = 16


def near_context(neighbour_keys: Sequence[str]) -> str:
    """The context of a chunk behind these neighbours, named by their base blocks' keys, first placed first.

    Another order is another context. Raises ValueError where there are none: that context is `head`.
    """
    if not neighbour_keys:
        raise ValueError("a chunk without neighbours has the context head")
    digest = hashlib.sha256(str(len(neighbour_keys)).encode())
    for key in neighbour_keys:
        digest.update(b"\0" + key.encode())
    return NEAR_PREFIX + digest.hexdigest()[:_DIGEST_DIGITS]


def is_near(context: str) -> bool:
    """Whether a block of this context attended to other chunks, and is worth nothing without their list."""
    return context.startswith(NEAR_PREFIX)
