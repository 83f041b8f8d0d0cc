"""The block store: files, catalog rows and tiers of KV blocks, kept in step (DESIGN.md §4 and §6)."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from storage.blocks import BlockExpectation, EncodedBlock, pack_header, read_block_file
from storage.buffers import AlignedBuffers
from storage.catalog import BlockRow, Catalog
from storage.durable import publish_bytes, retire_file, sync_folder
from storage.errors import BlockDamaged, StorageError
from storage.home import Home
from storage.tiers import Lease, PageableTier, once

DAMAGED_COUNTER = "blocks_damaged"
# Damaged files are kept for inspection, but not without end.
QUARANTINED_FILES = 16


@dataclass(frozen=True)
class StoreSettings:
    """`direct`: read past the page cache where the file system can. `pageable_bytes`: the memory tier's budget."""

    pageable_bytes: int = 0
    direct: bool = True


class BlockStore:
    """Publishes, serves and retires blocks. `load` may run on several threads; the rest belongs to one writer."""

    def __init__(self, home: Home, catalog: Catalog, settings: StoreSettings) -> None:
        self._home = home
        self._catalog = catalog
        self._settings = settings
        self._buffers = AlignedBuffers()
        self.pageable = PageableTier(settings.pageable_bytes, self._buffers)

    def load(self, row: BlockRow) -> Lease:
        """The block of a ready row, from memory or disk, checked. Raises BlockDamaged; then call `quarantine`."""
        lease = self.pageable.lease(row.key)
        if lease is not None:
            if lease.block.header.file_name == row.file:
                return lease
            lease.release()  # another codec or generation of the same block, published before this row was
            self.pageable.retire(row.key)
        block = read_block_file(self.path(row), _expectation(row), self._buffers, self._settings.direct)
        kept = self.pageable.offer(block)
        if kept is not None:
            return Lease(kept.block, "disk", kept.release)
        return Lease(block, "disk", once(lambda: self._give_back(block)))

    def publish(self, block: EncodedBlock, collection_id: int, chunk_ids: Sequence[int]) -> BlockRow:
        """Make a block durable, then say `ready`; returns the row that is served. Raises DiskFull, StorageError.

        Raises UnknownRow where its chunks were deleted meanwhile. After any error no new row is there, and the file is
        gone again unless an older row of the same block names it.
        """
        header = block.header
        packed, checksum = pack_header(header)
        row = BlockRow(
            key=header.key,
            collection_id=collection_id,
            fingerprint=header.fingerprint,
            kind=header.kind,
            context=header.context,
            codec=header.codec,
            generation=header.generation,
            tokens=header.tokens,
            size_bytes=len(packed) + block.data.nbytes,
            header_bytes=len(packed),
            header_checksum=checksum,
            file=header.file_name,
        )
        try:
            publish_bytes(self.path(row), [packed, block.data.data], self._home.temporary)
            unused = self._catalog.publish_block(row, chunk_ids)
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
        """Take a damaged block out of use, keep its file for inspection, count it."""
        self._catalog.begin_block_delete([row.key])
        self.pageable.retire(row.key)
        try:
            self.path(row).rename(self._home.quarantine / row.file)
        except FileNotFoundError:
            pass
        except OSError:  # it cannot be kept, then it goes
            retire_file(self.path(row))
        sync_folder(self._home.blocks)
        self._catalog.finish_block_delete([row.key])
        self._catalog.count(DAMAGED_COUNTER)
        oldest_first = sorted(self._home.quarantine.glob("*.safetensors"), key=lambda file: file.stat().st_mtime_ns)
        for file in oldest_first[:-QUARANTINED_FILES]:
            retire_file(file)

    def retire(self, rows: Sequence[BlockRow]) -> None:
        """Delete blocks: rows stop being served, files go, rows go. Copies in quarantine go too."""
        keys = [row.key for row in rows]
        self._catalog.begin_block_delete(keys)
        for row in rows:
            self.pageable.retire(row.key)
            retire_file(self.path(row), sync_directory=False)
            for copy in self._home.quarantine.glob(f"{row.key}.*"):
                retire_file(copy)
        sync_folder(self._home.blocks)
        self._catalog.finish_block_delete(keys)

    def check(self, row: BlockRow) -> None:
        """Read a block's file whole, past memory tiers. Raises BlockDamaged."""
        self._give_back(read_block_file(self.path(row), _expectation(row), self._buffers, self._settings.direct))

    def recover(self) -> int:
        """After a kill: finish deletions, empty the folder of drafts, drop files no row names. Returns files dropped.

        Only for the process that holds the HomeLock.
        """
        self.retire(self._catalog.deleting_blocks())
        dropped = 0
        named = {row.file for row in self._catalog.all_blocks()}
        strays = [file for file in self._home.blocks.iterdir() if file.name not in named]
        for file in [*strays, *self._home.temporary.iterdir()]:
            if file.is_symlink() or not file.is_dir():  # a file system puts folders of its own at its root
                retire_file(file)
                dropped += 1
        return dropped

    def missing(self) -> list[BlockRow]:
        """Ready rows whose file is gone or has another size; `quarantine` them."""
        return [row for row in self._catalog.all_blocks() if row.state == "ready" and not self._has_size(row)]

    def path(self, row: BlockRow) -> Path:
        """Where a block's file lies."""
        return self._home.blocks / row.file

    def _drop_unless_named(self, row: BlockRow) -> None:
        """Remove a file that was to be published, unless a ready row of the same bytes names it already."""
        named = self._catalog.block(row.key)
        if named is None or named.file != row.file:
            retire_file(self.path(row))

    def _has_size(self, row: BlockRow) -> bool:
        try:
            return self.path(row).stat().st_size == row.size_bytes
        except FileNotFoundError:
            return False

    def _give_back(self, block: EncodedBlock) -> None:
        if block.buffer is not None:
            self._buffers.give(block.buffer)


def _expectation(row: BlockRow) -> BlockExpectation:
    return BlockExpectation(
        key=row.key,
        fingerprint=row.fingerprint,
        codec=row.codec,
        generation=row.generation,
        tokens=row.tokens,
        size_bytes=row.size_bytes,
        header_bytes=row.header_bytes,
        header_checksum=row.header_checksum,
    )


__all__ = ["DAMAGED_COUNTER", "BlockDamaged", "BlockStore", "StoreSettings"]
