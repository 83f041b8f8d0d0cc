"""Where a method's blocks come from: memory, or files that are read past the page cache."""

import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

from appliance.benches.bandwidth import drop_from_page_cache
from appliance.benches.base import BenchRefused
from models.landing import BlockSource, LayerListener, LeasedBlock
from storage.block_rows import row_of
from storage.blocks import EncodedBlock, pack_header
from storage.catalog import BlockRow, Catalog
from storage.durable import publish_bytes
from storage.home import Home
from storage.lock import HomeLock
from storage.scratch import scratch_folder
from storage.store import BlockStore, StoreSettings
from storage.tiers import DISK, PAGEABLE, Lease


class Shelf(Protocol):
    """Makes a source of the blocks of one prompt, in prompt order; whatever that needs is not in any time."""

    tier: str

    def source(self, blocks: Sequence[EncodedBlock]) -> BlockSource: ...


class _Blocks:
    """Blocks that are all there; `load` gives each."""

    def __init__(self, load: Callable[[int, LayerListener], LeasedBlock]) -> None:
        self._load = load

    def load(self, chunk: int, on_layers: LayerListener) -> LeasedBlock | None:
        return self._load(chunk, on_layers)

    def compute(self, chunk: int) -> EncodedBlock:
        raise BenchRefused("a block of the bench is not there: run the bench again")


class MemoryShelf:
    """Blocks as they are."""

    tier = PAGEABLE

    def source(self, blocks: Sequence[EncodedBlock]) -> BlockSource:
        def load(chunk: int, on_layers: LayerListener) -> LeasedBlock:
            block = blocks[chunk]
            on_layers(block, range(block.header.geometry.layers))
            return Lease(block, PAGEABLE, lambda: None)

        return _Blocks(load)


class ColdShelf:
    """Files in a data folder of its own, one a block and codec, written when first asked for, read by a BlockStore."""

    tier = DISK

    def __init__(self, home: Home, catalog: Catalog, direct: bool, device: str) -> None:
        self._home = home
        self._direct = direct
        self._store = BlockStore(home, catalog, StoreSettings(direct=direct, device=device))
        self._rows: dict[str, BlockRow] = {}

    def source(self, blocks: Sequence[EncodedBlock]) -> BlockSource:
        """Raises BenchRefused where the disk has no room, DiskFull, WriteFailed."""
        rows = [self._row(block) for block in blocks]
        if not self._direct:
            drop_from_page_cache([self._store.path(row) for row in rows])
        return _Blocks(lambda chunk, on_layers: self._store.load(rows[chunk], on_layers))

    def _row(self, block: EncodedBlock) -> BlockRow:
        name = block.header.file_name
        if name not in self._rows:
            packed, checksum = pack_header(block.header)
            row = row_of(block.header, 0, len(packed), checksum)
            if row.size_bytes > shutil.disk_usage(self._home.root).free // 2:
                raise BenchRefused("the disk has no room for the blocks: ask fewer --questions, or leave out --cold")
            publish_bytes(self._home.blocks / row.file, [packed, block.data.data], self._home.temporary)
            self._rows[name] = row
        return self._rows[name]


@contextmanager
def open_shelf(home: Home, cold: bool, direct: bool, device: str) -> Iterator[Shelf]:
    """Memory, or for `cold` files below the data folder, which are removed afterwards."""
    if not cold:
        yield MemoryShelf()
        return
    with scratch_folder(home) as root:
        own = Home(root / "home")
        own.create()
        with HomeLock(own), Catalog.open(own) as catalog:
            yield ColdShelf(own, catalog, direct, device)
