"""Hot blocks brought to their tiers in idle time, so that the first question after a start finds them in memory.

HA-RAG (Algorithm 2) moves a block when it is asked for and begins with everything on disk; what was learned of
hotness before the start is only used once each block has been read again. Here nobody waits for that.
"""

import threading
from collections.abc import Callable, Sequence

from storage.catalog import Catalog, RankedBlock
from storage.errors import BlockDamaged
from storage.store import BlockStore

_AT_ONCE = 64


def preload(
    catalog: Catalog,
    store: BlockStore,
    ranked: Sequence[RankedBlock],
    pause: Callable[[], None],
    stop: threading.Event,
) -> None:
    """Load the blocks that were asked for before, hottest first, where they lie in a slower tier than they deserve.

    `pause` lets questions go first. Ends at the first block that its tier has no room for. Raises OSError and
    MemoryError as loading does. A damaged block is set aside.
    """
    lagging = [block.key for block in ranked if block.score > 0 and store.lags(block.key)]
    for first in range(0, len(lagging), _AT_ONCE):
        keys = lagging[first : first + _AT_ONCE]
        rows = catalog.blocks(keys)
        for row in (rows[key] for key in keys if key in rows):
            pause()
            if stop.is_set():
                return
            try:
                store.load(row).release()
            except BlockDamaged:
                store.quarantine(row)
                continue
            if store.lags(row.key):
                return
