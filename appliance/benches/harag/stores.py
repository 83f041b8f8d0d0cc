"""KV on disk: every chunk read once, encoded for every set that needs it, one file for each chunk and codec."""

import shutil
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
import torch

from appliance.benches.base import BenchRefused, Progress
from appliance.benches.harag.base import BF16
from appliance.benches.harag.workload import COLLECTION
from appliance.engine import Engine
from storage.blocks import BlockHeader, encode_block, pack_header
from storage.catalog import BlockRow
from storage.codecs import CodecPair
from storage.durable import publish_bytes, sync_folder
from storage.errors import BlockRefused
from storage.home import Home
from storage.store import row_of

DISK_SHARE = 2
"""Half of the free space is the most a bench takes."""

Codecs = Mapping[str, CodecPair]
"""A KV set: the codecs of each chunk, by block key."""


@dataclass
class StoredSets:
    """Rows of the files by set and block key. `refused` names chunks that a codec could not hold: kept in bf16."""

    rows: dict[str, dict[str, BlockRow]] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    seconds: float = 0.0

    def size_bytes(self, kv_set: str) -> int:
        """What the files of a set take together."""
        return sum(row.size_bytes for row in self.rows[kv_set].values())


def need_bytes(engine: Engine, ids: Mapping[str, np.ndarray], sets: Mapping[str, Codecs]) -> int:
    """What the files of all sets take on disk, headers and padding included."""
    heads: dict[CodecPair, int] = {}
    total = 0
    for key, tokens in ids.items():
        for pair in {codecs[key] for codecs in sets.values()}:
            header = _header(engine, key, len(tokens), pair)
            if pair not in heads:
                heads[pair] = len(pack_header(header)[0])
            total += heads[pair] + header.layout.data_bytes
    return total


def check_room(home: Home, wanted_bytes: int) -> None:
    """Raises BenchRefused where the files would take more than half of what is free."""
    free = shutil.disk_usage(home.root).free
    if wanted_bytes > free // DISK_SHARE:
        raise BenchRefused(
            f"the KV of this corpus takes {wanted_bytes / 1e9:.1f} GB and half of the free space is"
            f" {free / DISK_SHARE / 1e9:.1f} GB: name fewer --chunks, or another disk with --home"
        )


def store_sets(
    engine: Engine, home: Home, ids: Mapping[str, np.ndarray], sets: Mapping[str, Codecs], progress: Progress
) -> StoredSets:
    """Read every chunk once and write its files. Raises DiskFull, WriteFailed, PromptTooLong."""
    stored = StoredSets({name: {} for name in sets})
    began = time.perf_counter()
    for number, (key, tokens) in enumerate(ids.items()):
        progress("reading chunks", number, len(ids))
        files = write_files(engine, home, key, tokens, {codecs[key] for codecs in sets.values()}, stored.refused)
        for name, codecs in sets.items():
            stored.rows[name][key] = files[codecs[key]]
    sync_folder(home.blocks)
    stored.seconds = time.perf_counter() - began
    return stored


def write_files(
    engine: Engine, home: Home, key: str, ids: np.ndarray, pairs: Iterable[CodecPair], refused: dict[str, str]
) -> dict[CodecPair, BlockRow]:
    """Read one chunk and write a file for each pair; one that cannot hold it gets bf16's, and says so in `refused`."""
    keys, values = engine.reader.read(ids)
    # Moved once, not once for each codec.
    keys, values = keys.cpu(), values.cpu()
    rows: dict[CodecPair, BlockRow] = {}
    for pair in sorted(set(pairs) | {BF16}, key=lambda pair: (pair != BF16, pair)):
        try:
            rows[pair] = _write(home, _header(engine, key, len(ids), pair), keys, values)
        except BlockRefused as refusal:
            rows[pair] = rows[BF16]
            refused[f"{key}.{pair}"] = str(refusal)
    return rows


def _write(home: Home, header: BlockHeader, keys: torch.Tensor, values: torch.Tensor) -> BlockRow:
    block = encode_block(header, keys, values)
    packed, checksum = pack_header(block.header)
    row = row_of(block.header, 0, len(packed), checksum)
    publish_bytes(home.blocks / row.file, [packed, block.data.data], home.temporary, sync_directory=False)
    return row


def _header(engine: Engine, key: str, tokens: int, pair: CodecPair) -> BlockHeader:
    return BlockHeader(
        key=key,
        fingerprint=engine.fingerprint,
        collection=COLLECTION,
        kind="self",
        context=engine.reader.context,
        key_codec=pair.keys,
        value_codec=pair.values,
        generation=0,
        tokens=tokens,
        geometry=engine.model.geometry,
        layer_checksums=("0" * 32,) * engine.model.geometry.layers,
    )
