"""The block store: files, catalog rows and tiers of KV blocks, kept in step (DESIGN.md §4 and §6)."""

import os
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from storage.block_rows import expectation, row_of
from storage.blocks import EncodedBlock, pack_header
from storage.blocks.reader import OnLayers
from storage.catalog import BlockRow, Catalog, NearFacts
from storage.durable import WriteFailed, publish_bytes, retire_file, sync_folder
from storage.errors import BlockDamaged, StorageError
from storage.home import Home
from storage.placement import Placement
from storage.serving import Serving
from storage.tiers import MEMORY_TIERS, Lease, Tier

DAMAGED_COUNTER = "blocks_damaged"
# How often a file could not be removed; the same file counts again at each try.
STUCK_COUNTER = "files_not_removed"
# Damaged files are kept for inspection, but not without end.
QUARANTINED_FILES = 16


@dataclass(frozen=True)
class StoreSettings:
    """Budgets of the memory tiers, and how files are read.

    `direct`: read past the page cache where the file system can. `device` (as torch names it) holds the `gpu` tier and
    makes `pinned` page-locked; without CUDA both are plain RAM. A lease refuses new use after `lease_age_s`.
    """

    pageable_bytes: int = 0
    direct: bool = True
    pinned_bytes: int = 0
    gpu_bytes: int = 0
    device: str = "cpu"
    lease_age_s: float = 600.0


class BlockStore:
    """Publishes, serves and retires blocks. Thread-safe, but for `recover` and `set_missing_aside`.

    A file gets its name and its row, or loses both, under one lock. Nobody holds that while a file is written, and
    `pause`, which is called again and again meanwhile, may wait for a question to go first.
    """

    def __init__(
        self,
        home: Home,
        catalog: Catalog,
        settings: StoreSettings,
        pause: Callable[[], None] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._home = home
        self._catalog = catalog
        self._pause = pause
        self._naming = threading.RLock()
        budgets_bytes = (settings.gpu_bytes, settings.pinned_bytes, settings.pageable_bytes)
        budgets = dict(zip(MEMORY_TIERS, budgets_bytes, strict=True))
        self._serving = Serving(budgets, settings.device, settings.direct, settings.lease_age_s, clock)

    def load(self, row: BlockRow, on_layers: OnLayers | None = None) -> Lease:
        """The block of a ready row, from memory or disk, checked. Raises BlockDamaged; then call `quarantine`.

        `on_layers(block, layers)` is called on this thread, in order, with each run of layers as soon as it is read
        and checked (from memory: once with all), while the next ones are read. After BlockDamaged whatever it was
        given counts for nothing. A row that was replaced since it was looked up gives the block that replaced it.
        `Lease.tier` is where the block was found.
        """
        try:
            return self._serving.load(self.path(row), expectation(row), on_layers)
        except BlockDamaged:
            current = self._current(row)
            if current is None or current.file == row.file:
                raise
        return self.load(current, on_layers)

    def place_by(self, placement: Placement) -> None:
        """From now on blocks are kept where `placement` says. The snapshot is swapped at once; nothing is moved."""
        self._serving.stack.place_by(placement)

    def where(self, row: BlockRow) -> str:
        """The tier a load would find the block in now: what a planner wants to know. Takes no lease."""
        return self._serving.stack.where(row.key)

    def lags(self, key: str) -> bool:
        """Whether a block lies in a slower tier than it deserves: the next load moves it."""
        return self._serving.stack.lags(key)

    @property
    def tiers(self) -> tuple[Tier, ...]:
        """`gpu`, `pinned`, `pageable`."""
        return self._serving.stack.tiers

    @property
    def pageable(self) -> Tier:
        return self.tiers[-1]

    @property
    def leases_out(self) -> int:
        """Leases that `load` gave and that are not released."""
        return self._serving.leases.out

    def memory(self) -> dict[str, dict[str, Any]]:
        """For `status`: each tier's state by name (TierState), `disk` (hits, bytes read) and `leases`."""
        return self._serving.state()

    def publish(
        self,
        block: EncodedBlock,
        collection_id: int,
        chunk_ids: Sequence[int],
        yields: bool = True,
        near: NearFacts | None = None,
    ) -> BlockRow:
        """Make a block durable, then say `ready`; returns the row that is served. Raises DiskFull, StorageError.

        The write `yields` to questions (`pause`) unless its caller has the model's turn, for which they wait. A block
        that attended to other chunks goes with their list, `near`.

        Raises UnknownRow where its chunks were deleted meanwhile. After any error no new row is there, and the file is
        gone again unless an older row of the same block names it.
        """
        header = block.header
        packed, checksum = pack_header(header)
        row = row_of(header, collection_id, len(packed), checksum)
        with ExitStack() as named:
            try:
                publish_bytes(
                    self.path(row),
                    [packed, block.data.data],
                    self._home.temporary,
                    pause=self._pause if yields else None,
                    before_rename=lambda: named.enter_context(self._naming),
                )
                unused = self._catalog.publish_block(row, chunk_ids, near)
            except StorageError:
                with suppress(StorageError):  # the first error is the one to tell; `recover` drops what stays
                    self._drop_unless_named(row)
                raise
            if unused is None:
                return row
            with suppress(StorageError):  # the row is ready: `recover` drops what stays
                retire_file(self._home.blocks / unused)
            return row if unused != row.file else self._catalog.block(row.key) or row

    def quarantine(self, row: BlockRow) -> None:
        """Take a damaged block out of use, keep its file for inspection, count it.

        Where the file can be neither moved nor removed its row stays `deleting`, and `recover` tries again. A row that
        was replaced meanwhile is let be: its block is another file's now.
        """
        with self._naming:
            current = self._current(row)
            if current is not None and current.file != row.file:
                return
            self._catalog.begin_block_delete([row.key])
            self._serving.stack.retire(row.key)
            gone = self._set_aside(row) or self.try_remove(self.path(row))
            sync_folder(self._home.blocks)
            if gone:
                self._catalog.finish_block_delete([row.key])
        self._catalog.count(DAMAGED_COUNTER)
        files = self._home.quarantine.glob("*.safetensors")
        for file in sorted(files, key=lambda file: file.lstat().st_mtime_ns)[:-QUARANTINED_FILES]:
            self.try_remove(file)

    def retire(self, rows: Sequence[BlockRow]) -> list[Path]:
        """Delete blocks: rows stop being served, files go, rows go. Copies in quarantine go too.

        Where a row was replaced meanwhile, the block that replaced it goes too. Returns the files that could not be
        removed: their rows stay `deleting`, and `recover` tries again.
        """
        with self._naming:
            current = self._catalog.blocks([row.key for row in rows])
            self._catalog.begin_block_delete([row.key for row in rows])
        gone: list[str] = []
        staying: list[Path] = []
        for row in rows:
            self._serving.stack.retire(row.key)
            with self._naming:  # one block at a time, so that a question waits for one at most
                files = {self.path(row), self.path(current.get(row.key, row))}
                files.update(self._home.quarantine.glob(f"{row.key}.*"))
                left = [file for file in sorted(files) if not self.try_remove(file)]
            staying += left
            if not left:
                gone.append(row.key)
        if rows:
            sync_folder(self._home.blocks)
            sync_folder(self._home.quarantine)
        with self._naming:
            self._catalog.finish_block_delete(gone)
        return staying

    def drop_unclaimed(self, collection_id: int) -> list[Path]:
        """Remove the collection's files that no row names (see `UnclaimedBlocks`); returns those that stay."""
        with self._naming:
            files = self._catalog.unclaimed(collection_id)
            staying = [self._home.blocks / name for name in files if not self.try_remove(self._home.blocks / name)]
        if files:
            sync_folder(self._home.blocks)
        kept = {file.name for file in staying}
        self._catalog.forget_unclaimed([name for name in files if name not in kept])
        return staying

    def try_remove(self, file: Path) -> bool:
        """Remove a file, without syncing its folder. False, and counted, where that cannot be done. Raises DiskFull."""
        try:
            retire_file(file, sync_directory=False)
        except WriteFailed:
            self._catalog.count(STUCK_COUNTER)
            return False
        return True

    def check(self, row: BlockRow) -> None:
        """Read a block's file whole, past memory tiers. Raises BlockDamaged."""
        self._serving.check(self.path(row), expectation(row))

    def recover(self) -> int:
        """After a kill: finish deletions, empty the folder of drafts, drop files no row names. Returns files dropped.

        What cannot be removed is counted and tried again next time. Only for the process that holds the HomeLock.
        """
        self.retire([*self._catalog.deleting_blocks(), *self._catalog.unused_blocks()])
        named = {row.file for row in self._catalog.all_blocks()} | set(self._catalog.unclaimed())
        strays = [file for file in self._home.blocks.iterdir() if file.name not in named]
        # A file system puts folders of its own at its root.
        files = [file for file in [*strays, *self._home.temporary.iterdir()] if file.is_symlink() or not file.is_dir()]
        return sum(self.try_remove(file) for file in files)

    def missing(self) -> list[BlockRow]:
        """Ready rows whose file is gone or has another size; `quarantine` them. One look at the folder."""
        with os.scandir(self._home.blocks) as entries:
            sizes = {entry.name: entry.stat(follow_symlinks=False).st_size for entry in entries}
        rows = self._catalog.all_blocks()
        return [row for row in rows if row.state == "ready" and sizes.get(row.file) != row.size_bytes]

    def set_missing_aside(self) -> int:
        """Quarantine and count what `missing` finds, so that it is computed again; returns how many."""
        lost = self.missing()
        for row in lost:
            self.quarantine(row)
        return len(lost)

    def path(self, row: BlockRow) -> Path:
        """Where a block's file lies."""
        return self._home.blocks / row.file

    def _drop_unless_named(self, row: BlockRow) -> None:
        """Remove a file that was to be published, unless a ready row of the same bytes names it already."""
        with self._naming:
            named = self._catalog.block(row.key)
            if named is None or named.file != row.file:
                retire_file(self.path(row))

    def _set_aside(self, row: BlockRow) -> bool:
        """Move the file to the quarantine. A folder in its place is not ours to keep; False where it does not move."""
        path = self.path(row)
        if path.is_dir() and not path.is_symlink():
            return False
        try:
            path.rename(self._home.quarantine / row.file)
        except FileNotFoundError:
            return True
        except OSError:
            return False  # it cannot be kept, then it goes
        return True

    def _current(self, row: BlockRow) -> BlockRow | None:
        """The row that is ready now for the block of `row`."""
        with suppress(StorageError):  # a catalog that fails says nothing new
            return self._catalog.block(row.key)
        return None


__all__ = [
    "DAMAGED_COUNTER",
    "STUCK_COUNTER",
    "BlockDamaged",
    "BlockStore",
    "StoreSettings",
    "expectation",
    "row_of",
]
