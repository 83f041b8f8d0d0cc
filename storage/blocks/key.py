"""Names of blocks. A block is only ever served for its own key (DESIGN.md §8.1)."""

import hashlib
from collections.abc import Sequence

import numpy as np


def block_key(fingerprint: str, collection: str, kind: str, context: str, token_ids: Sequence[int] | np.ndarray) -> str:
    """64 hexadecimal digits over everything the block's numbers depend on.

    Each field is preceded by its length, so that no two lists of fields give the same bytes.
    """
    digest = hashlib.sha256()
    for field in ("kv-block-1", fingerprint, collection, kind, context):
        encoded = field.encode()
        digest.update(len(encoded).to_bytes(8, "little"))
        digest.update(encoded)
    digest.update(np.asarray(token_ids, dtype="<i4").tobytes())
    return digest.hexdigest()
