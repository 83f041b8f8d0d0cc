"""Blocks that arrive piece by piece: no damaged layer is handed on, and no buffer is used again too early."""

import errno
import os
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from storage.blocks import read_block_file
from storage.buffers import AlignedBuffers
from storage.errors import BlockDamaged
from storage.geometry import Geometry
from tests.storage.blocks.builders import make_block, same_block, write_block

# With about 1,100 tokens several pieces, and layers that begin in the middle of one.
LARGE = Geometry(layers=7, kv_heads=4, head_dim=64)
both_ways = pytest.mark.parametrize("direct", [True, False], ids=["direct", "buffered"])


class Watched(AlignedBuffers):
    """Counts what is given back, and looks whether it may be."""

    def __init__(self, may_give: Callable[[], bool] = lambda: True) -> None:
        super().__init__()
        self.given = 0
        self.may_give = may_give

    def give(self, buffer: np.ndarray) -> None:
        assert self.may_give(), "a buffer was given back while it was written to"
        self.given += 1


@both_ways
@pytest.mark.parametrize("threads", [0, 1, 4])
def test_every_way_of_reading_gives_the_same_block(tmp_path: Path, direct: bool, threads: int) -> None:
    block = make_block(geometry=LARGE, tokens=1100)
    path, expected = write_block(tmp_path, block)
    runs: list[range] = []
    with ThreadPoolExecutor(threads or 1) as pool:
        readers = pool if threads else None
        found = read_block_file(path, expected, AlignedBuffers(), direct, lambda _, run: runs.append(run), readers)
    assert same_block(found, block)
    assert [layer for run in runs for layer in run] == list(range(LARGE.layers))
    assert len(runs) > 2


@both_ways
@pytest.mark.parametrize("damaged", [0, 3, LARGE.layers - 1, LARGE.layers])
def test_no_damaged_layer_is_handed_on(tmp_path: Path, damaged: int, direct: bool) -> None:
    """Layers before the damage may have been placed already; the error says that they count for nothing."""
    block = make_block(geometry=LARGE, tokens=1099)
    path, expected = write_block(tmp_path, block)
    layout = block.header.layout
    assert layout.padding_bytes
    content = bytearray(path.read_bytes())
    content[expected.header_bytes + damaged * layout.layer_bytes + 1] ^= 16
    path.write_bytes(content)
    buffers, told = Watched(), list[int]()
    what = f"layer {damaged}" if damaged < LARGE.layers else "padding"
    with ThreadPoolExecutor(2) as pool, pytest.raises(BlockDamaged, match=what):
        read_block_file(path, expected, buffers, direct, lambda _, run: told.extend(run), pool)
    assert buffers.given == 1
    assert told == list(range(len(told)))
    assert len(told) <= damaged
    assert len(told) > 0 or damaged == 0


@pytest.mark.parametrize("at", [1, 2])
def test_a_read_that_fails_late_waits_for_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: int) -> None:
    """The buffer may only be used again when nobody reads into it any more."""
    path, expected = write_block(tmp_path, make_block(geometry=LARGE, tokens=1500))
    system_read, reading = os.preadv, list[int]()
    start = threading.Event()

    def failing(descriptor: int, views: Sequence[memoryview], offset: int) -> int:
        if offset == 0:
            return system_read(descriptor, views, offset)
        if offset >> 20 == at:
            start.set()
            raise OSError(errno.EIO, "bad sector")
        start.wait(5)
        reading.append(1)
        time.sleep(0.02)
        count = system_read(descriptor, views, offset)
        reading.pop()
        return count

    monkeypatch.setattr(os, "preadv", failing)

    buffers = Watched(lambda: not reading)
    with ThreadPoolExecutor(3) as pool, pytest.raises(BlockDamaged, match="cannot be read"):
        read_block_file(path, expected, buffers, True, None, pool)
    assert buffers.given == 1
