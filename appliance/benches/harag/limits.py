"""How large a corpus may be where a run must fit a borrowed machine: by disk, and by the time that preparing takes."""

import shutil
import time
from dataclasses import dataclass

import numpy as np

from appliance.benches.base import BenchRefused
from appliance.benches.harag.base import BF16, HaragBenchSettings
from appliance.benches.harag.kv_sets import ASSUMED
from appliance.benches.harag.stores import DISK_SHARE, write_files
from appliance.engine import Engine
from storage.blocks.layout import block_layout
from storage.home import Home
from storage.profiles import paper_profile

PREPARING_S = 480
# Headers, padding, and codecs of hot chunks that are larger than the coldest.
_SPARE = 0.9


@dataclass(frozen=True)
class CorpusLimit:
    """The most tokens of chunks, and why; none where the corpus is as large as asked for, or the run is refused."""

    tokens: float = float("inf")
    reason: str = ""
    timing_alone: bool = False
    """Random weights: nothing is answered."""


def most_tokens(engine: Engine, home: Home, bench: HaragBenchSettings) -> CorpusLimit:
    """What half of the free disk holds and PREPARING_S suffice for, as one chunk that is prepared now tells.

    Raises BenchRefused where that is not even one prompt of chunks.
    """
    largest = max(bench.codecs or ASSUMED, key=lambda pair: _bytes_per_token(engine, pair.keys, pair.values))
    pairs = {BF16, paper_profile().coldest, largest}
    per_token = sum(_bytes_per_token(engine, pair.keys, pair.values) for pair in pairs)
    by_disk = int(_SPARE * shutil.disk_usage(home.root).free / DISK_SHARE / per_token)
    head = engine.template.head
    ids = np.resize(head, bench.chunk_tokens)
    seconds = float("inf")
    for _ in range(2):  # the first pays for what is done once
        began = time.perf_counter()
        rows = write_files(engine, home, "0" * 64, ids, pairs, {})
        seconds = min(seconds, time.perf_counter() - began)
    for file in {row.file for row in rows.values()}:
        (home.blocks / file).unlink()
    by_time = int(PREPARING_S / seconds * bench.chunk_tokens)
    tokens = min(by_disk, by_time)
    if tokens < bench.top_k * bench.chunk_tokens:
        raise BenchRefused(
            f"half of the free disk and {PREPARING_S} s of preparing allow {tokens} tokens of chunks, less than one"
            " prompt: name another disk with --home, or a smaller model"
        )
    why = "half of the free disk" if by_disk < by_time else f"{PREPARING_S // 60} minutes of preparing"
    return CorpusLimit(tokens, f"at most {tokens} tokens of chunks, for {why}", timing_alone=True)


def _bytes_per_token(engine: Engine, keys: str, values: str) -> float:
    tokens = 256
    return block_layout(engine.model.geometry, tokens, keys, values).data_bytes / tokens
