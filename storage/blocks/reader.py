"""Reading a block file: in pieces into an aligned buffer, each layer checked before it is handed on."""

import errno
import os
import stat
from collections.abc import Callable, Generator
from concurrent.futures import Executor
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import xxhash

from storage.blocks.base import BlockHeader, EncodedBlock
from storage.blocks.header import parse_header
from storage.blocks.layout import ALIGNMENT_BYTES
from storage.blocks.pieces import REFUSES_DIRECT, arrivals
from storage.buffers import Buffers
from storage.errors import BlockDamaged

OnLayers = Callable[[EncodedBlock, range], None]
"""Told of each run of layers, in order, once they are in `block` and checked."""

# Errors that are about this process, not about the file: every other block would fail the same way.
_OF_THE_PROCESS = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)


@dataclass(frozen=True)
class BlockExpectation:
    """What the catalog promises of a file. A file that differs in any point is damaged."""

    key: str
    fingerprint: str
    codec: str
    generation: int
    tokens: int
    size_bytes: int
    header_bytes: int
    header_checksum: str


def read_block_file(
    path: Path,
    expected: BlockExpectation,
    buffers: Buffers,
    direct: bool = True,
    on_layers: OnLayers | None = None,
    readers: Executor | None = None,
) -> EncodedBlock:
    """The block of a file, or BlockDamaged: missing, torn, flipped (header or data), or another block's.

    `direct` reads past the page cache (O_DIRECT) where the file system allows it. `on_layers` is called on this thread
    while `readers` read on; without `readers` this thread reads. Where it was called and BlockDamaged is raised after
    all, what it was given is worth nothing. Raises OSError only for errors that say nothing of the file, such as too
    many open files, MemoryError, and whatever `on_layers` raises; the buffer is given back.
    """
    size = expected.size_bytes
    if size % ALIGNMENT_BYTES or not 0 < expected.header_bytes < size:
        raise BlockDamaged(f"{path.name}: the catalog's sizes are not those of a block; the block is computed again")
    try:
        descriptor = _open(path, direct)
    except OSError as error:
        raise _explained(error, path.name) from error
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode) or found.st_size != size:
            raise BlockDamaged(f"{path.name}: the file is torn; the block is computed again")
        buffer = buffers.take(size)  # only once the file is known to have this size
        try:
            return _read(descriptor, path.name, buffer, expected, on_layers, readers)
        except BaseException:
            buffers.give(buffer)
            raise
    finally:
        os.close(descriptor)


def _open(path: Path, direct: bool) -> int:
    # O_NONBLOCK, because opening a pipe that lies there would wait for its other end; a file does not mind.
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    try:
        return os.open(path, flags | os.O_DIRECT if direct else flags)
    except OSError as error:
        if direct and error.errno in REFUSES_DIRECT:
            return os.open(path, flags)
        raise


def _read(
    descriptor: int,
    name: str,
    buffer: np.ndarray,
    expected: BlockExpectation,
    on_layers: OnLayers | None,
    readers: Executor | None,
) -> EncodedBlock:
    with closing(arrivals(descriptor, buffer, expected.header_bytes, readers)) as ends:
        end = _next(ends, name)
        header = _checked_header(name, buffer, expected)
        block = EncodedBlock(header, buffer[expected.header_bytes :], buffer)
        layout, data, checked = header.layout, block.data.data, 0
        while True:
            whole = min((end - expected.header_bytes) // layout.layer_bytes, layout.geometry.layers)
            for layer in range(checked, whole):
                slab = data[layer * layout.layer_bytes : (layer + 1) * layout.layer_bytes]
                if xxhash.xxh3_128_hexdigest(slab) != header.layer_checksums[layer]:
                    raise BlockDamaged(f"{name}: checksum of layer {layer} does not match; the block is computed again")
            if end == buffer.nbytes and data[layout.body_bytes :].tobytes().strip(b"\0"):
                raise BlockDamaged(f"{name}: padding is not empty; the block is computed again")
            if on_layers is not None and checked < whole:
                on_layers(block, range(checked, whole))
            if end == buffer.nbytes:
                return block
            checked, end = whole, _next(ends, name)


def _next(ends: Generator[int, None, None], name: str) -> int:
    """Wait for the next piece. Raises BlockDamaged; OSError where the file is not to blame."""
    try:
        return next(ends)
    except EOFError as error:
        raise BlockDamaged(f"{name}: the file ends early; the block is computed again") from error
    except OSError as error:
        raise _explained(error, name) from error


def _explained(error: OSError, name: str) -> Exception:
    if isinstance(error, FileNotFoundError):
        return BlockDamaged(f"{name}: the file is missing; the block is computed again")
    if error.errno in _OF_THE_PROCESS:
        return error
    reason = os.strerror(error.errno) if error.errno else str(error)
    return BlockDamaged(f"{name}: cannot be read ({reason}); the block is computed again")


def _checked_header(name: str, buffer: np.ndarray, expected: BlockExpectation) -> BlockHeader:
    header, checksum = parse_header(buffer[: expected.header_bytes].tobytes(), name, expected.header_checksum)
    if checksum != expected.header_checksum:
        raise BlockDamaged(f"{name}: not the file the catalog knows; the block is computed again")
    promised = (expected.key, expected.fingerprint, expected.codec, expected.generation, expected.tokens)
    if (header.key, header.fingerprint, header.codec, header.generation, header.tokens) != promised:
        raise BlockDamaged(f"{name}: belongs to another key; the block is computed again")
    if buffer.nbytes - expected.header_bytes != header.layout.data_bytes:
        raise BlockDamaged(f"{name}: the file is torn; the block is computed again")
    return header
