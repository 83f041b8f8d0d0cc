"""Measuring what the planner needs: three forward passes, a block placed, a file read. A second on a slow computer."""

import os
import secrets
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import numpy as np

from appliance.engine import Engine
from appliance.planner.base import Rates
from models.executor import LOADER_THREADS
from models.forward import contiguous_rows, run_rows
from storage.buffers import AlignedBuffers

_ROWS = 256
_PAST = 1024
_PROBE_BYTES = 16 << 20
_PIECE_BYTES = 2 << 20
_BLOCK_MS = 0.15
_TINY_MS = 1e-6
# Bytes a millisecond: a slow SSD. The first questions correct it.
_UNKNOWN_DISK = 4e5


def measure_rates(engine: Engine, folder: Path | None) -> Rates:
    """Measure now, best of two each; `folder` is on the disk of the blocks, None: it may not be written."""
    rows = max(min(_ROWS, engine.model.window // 2), 2)
    past = max(min(_PAST, engine.model.window - rows), 1)
    engine.executor.arena.reserve(past + rows)
    one = _pass_ms(engine, 1, 0)
    many = _pass_ms(engine, rows, 0)
    later = _pass_ms(engine, rows, past)
    pair_ms = max((later - many) / (rows * past), 0.0) or _TINY_MS
    row_ms = max((many - one) / (rows - 1) - pair_ms * rows / 2, _TINY_MS)
    return Rates(
        pass_ms=max(one - row_ms, _TINY_MS),
        row_ms=row_ms,
        pair_ms=pair_ms,
        disk_bytes_per_ms=_disk_bytes_per_ms(folder, engine.direct_reads) if folder is not None else _UNKNOWN_DISK,
        block_ms=_BLOCK_MS,
        place_tokens_per_ms=_place_tokens_per_ms(engine, rows),
    )


def _pass_ms(engine: Engine, rows: int, past: int) -> float:
    ids = np.resize(engine.template.head, rows)
    where = contiguous_rows(past, rows, engine.model.device)

    def once() -> None:
        run_rows(engine.model, engine.executor.arena, ids, where, past + rows)
        engine.model.wait()

    return _best_ms(once)


def _place_tokens_per_ms(engine: Engine, tokens: int) -> float:
    """Tokens a millisecond of all the loader's threads together, in the codec of new blocks."""
    ids = np.resize(engine.template.head, tokens)
    block = engine.reader.block(ids, "0" * 64, "none", "none")
    arena = engine.executor.arena
    cos, sin = engine.model.rotary.upto(tokens)
    placer = engine.executor.placers.find(block, arena)

    def once() -> None:
        placer.place(block, arena, 0, cos, sin)
        engine.model.wait()

    threads = min(LOADER_THREADS, len(os.sched_getaffinity(0)))
    return max(tokens / _best_ms(once) * threads, _TINY_MS)


def _disk_bytes_per_ms(folder: Path, direct: bool) -> float:
    """Bytes a millisecond read back, past the page cache where that is possible, by as many threads as the loader's."""
    probe = folder / f"{secrets.token_hex(8)}.probe"
    try:
        with probe.open("wb") as file:
            file.write(os.urandom(_PIECE_BYTES) * (_PROBE_BYTES // _PIECE_BYTES))
            file.flush()
            os.fsync(file.fileno())
        return _PROBE_BYTES / _best_ms(lambda: _read(probe, direct))
    except OSError:
        return _UNKNOWN_DISK
    finally:
        with suppress(OSError):
            probe.unlink()


def _read(probe: Path, direct: bool) -> None:
    descriptor = os.open(probe, os.O_RDONLY | (os.O_DIRECT if direct else 0))
    buffers = AlignedBuffers()

    def piece(offset: int) -> None:
        buffer = buffers.take(_PIECE_BYTES)
        os.preadv(descriptor, [buffer.data], offset)
        buffers.give(buffer)

    try:
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        with ThreadPoolExecutor(LOADER_THREADS) as pool:
            list(pool.map(piece, range(0, _PROBE_BYTES, _PIECE_BYTES)))
    finally:
        os.close(descriptor)


def _best_ms(action: Callable[[], None], rounds: int = 2) -> float:
    times = []
    for _ in range(rounds):
        began = time.perf_counter()
        action()
        times.append((time.perf_counter() - began) * 1e3)
    return max(min(times), _TINY_MS)
