"""Our systems: the executor over one store each, `reuse` as named, no planner, nothing written down afterwards."""

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import torch

from appliance.benches.bandwidth import drop_from_page_cache
from appliance.benches.base import BenchRefused
from appliance.benches.harag.base import TURBORAG, FirstToken, HaragBenchSettings, System, SystemSpec
from appliance.benches.harag.stopwatch import Stopwatch
from appliance.benches.harag.stores import StoredSets
from appliance.benches.harag.turborag import TurboRag
from appliance.engine import Engine
from models.executor import Execution, Executor
from models.landing import LayerListener, LeasedBlock
from models.prompt import Prompt
from models.strategies import find_strategy
from storage.blocks import EncodedBlock, encode_block
from storage.buffers import capacity_bytes
from storage.catalog import BlockRow, Catalog
from storage.codecs import CodecPair
from storage.home import Home
from storage.placement import RankedPlacement, place_by_shares
from storage.store import BlockStore, StoreSettings


class StoredSource:
    """A `BlockSource` of rows in prompt order. `disk_bytes` are those of files that were read."""

    def __init__(self, store: BlockStore, rows: Sequence[BlockRow], stopwatch: Stopwatch) -> None:
        self._store = store
        self._rows = rows
        self._stopwatch = stopwatch
        self._read: list[int] = []

    def load(self, chunk: int, on_layers: LayerListener) -> LeasedBlock | None:
        lease = self._store.load(self._rows[chunk], on_layers)
        self._stopwatch.mark()
        if lease.tier == "disk":
            self._read.append(self._rows[chunk].size_bytes)
        return lease

    def compute(self, chunk: int) -> EncodedBlock:
        raise BenchRefused("a block of the bench is not there: run the bench again")

    @property
    def disk_bytes(self) -> int:
        return sum(self._read)


class ReencodedSource:
    """A `BlockSource` that keeps nothing: stored blocks, decoded and encoded again by another codec."""

    def __init__(self, store: BlockStore, rows: Sequence[BlockRow], pair: CodecPair) -> None:
        self._store = store
        self._rows = rows
        self._pair = pair

    def load(self, chunk: int, on_layers: LayerListener) -> LeasedBlock | None:
        return None

    def compute(self, chunk: int) -> EncodedBlock:
        lease = self._store.load(self._rows[chunk])
        try:
            keys, values = lease.block.decode()
            header = replace(lease.block.header, key_codec=self._pair.keys, value_codec=self._pair.values)
        finally:
            lease.release()
        return encode_block(header, keys, values)


class StoredSystem:
    """Blocks of one KV set through our reader, tiers and kernels. `direct`: the store reads past the page cache."""

    def __init__(
        self, name: str, executor: Executor, store: BlockStore, rows: Mapping[str, BlockRow], direct: bool
    ) -> None:
        self.name = name
        self.store = store
        self._executor = executor
        self._rows = rows
        self._direct = direct

    def forget(self, keys: Sequence[str]) -> None:
        if not self._direct:
            drop_from_page_cache([self.store.path(self._rows[key]) for key in keys])

    def first_token(self, prompt: Prompt, keys: Sequence[str]) -> FirstToken:
        began = time.perf_counter()
        stopwatch = Stopwatch(self._executor.model.device)
        source = StoredSource(self.store, [self._rows[key] for key in keys], stopwatch)
        execution = self._executor.execute(prompt, find_strategy("reuse").plan(prompt), source)
        token = int(torch.argmax(execution.logits))
        ended = time.perf_counter()
        return FirstToken(token, (ended - began) * 1e3, stopwatch.last_ms(), execution.tiers, source.disk_bytes)

    def execute(
        self, prompt: Prompt, keys: Sequence[str], room_tokens: int, pair: CodecPair | None = None
    ) -> Execution:
        """Leave the prompt's KV in the arena, with room for an answer; with `pair` encoded again by that codec."""
        rows = [self._rows[key] for key in keys]
        stopwatch = Stopwatch(self._executor.model.device)
        ours = StoredSource(self.store, rows, stopwatch)
        source = ours if pair is None else ReencodedSource(self.store, rows, pair)
        return self._executor.execute(prompt, find_strategy("reuse").plan(prompt), source, room_tokens)


class SystemMaker:
    """Makes systems over the same files. Each has tiers of its own, and begins with everything on disk."""

    def __init__(
        self, engine: Engine, home: Home, catalog: Catalog, stored: StoredSets, ranking: Sequence[tuple[str, float]]
    ) -> None:
        """`ranking`: all keys and how often each was used while learning, hottest first."""
        self._engine = engine
        self._home = home
        self._catalog = catalog
        self._stored = stored
        self._ranking = ranking
        self._touching = BlockStore(home, catalog, StoreSettings(direct=engine.direct_reads))

    def measured(self, spec: SystemSpec, bench: HaragBenchSettings) -> System:
        """A system of the measurement."""
        rows = self._stored.rows[spec.kv_set]
        if spec.name == TURBORAG:
            return TurboRag(self._engine.reader, self._home.blocks, rows)
        placement = self.placement(spec, bench)
        budgets = {tier: _largest_bytes(rows.values(), blocks) for tier, blocks in placement.budget_blocks.items()}
        system = self._stored_system(spec.name, spec.kv_set, budgets)
        system.store.place_by(placement)
        if spec.preloads:
            for key, uses in self._ranking:
                if uses and system.store.lags(key):
                    system.store.load(rows[key]).release()
        return system

    def placement(self, spec: SystemSpec, bench: HaragBenchSettings) -> RankedPlacement:
        """HA-RAG's Algorithm 2 over the learned ranking."""
        rows = self._stored.rows[spec.kv_set]
        return place_by_shares([(key, rows[key].size_bytes) for key, _ in self._ranking], bench.shares(spec.tiers))

    def from_disk(self, kv_set: str) -> StoredSystem:
        """A set without any tier, for warming up and for quality: a block's bytes are the same in every tier."""
        return self._stored_system(kv_set, kv_set, {})

    def touch(self, keys: Sequence[str]) -> None:
        """Read these chunks' files of every KV set once, past the page cache."""
        for rows in self._stored.rows.values():
            for row in {rows[key].file: rows[key] for key in keys}.values():
                self._touching.check(row)

    def _stored_system(self, name: str, kv_set: str, budgets_bytes: Mapping[str, int]) -> StoredSystem:
        engine = self._engine
        settings = StoreSettings(
            pageable_bytes=budgets_bytes.get("pageable", 0),
            pinned_bytes=budgets_bytes.get("pinned", 0),
            gpu_bytes=budgets_bytes.get("gpu", 0),
            direct=engine.direct_reads,
            device=str(engine.model.device),
        )
        store = BlockStore(self._home, self._catalog, settings)
        return StoredSystem(name, engine.executor, store, self._stored.rows[kv_set], engine.direct_reads)


def _largest_bytes(rows: Iterable[BlockRow], blocks: int) -> int:
    """Memory that the largest so many blocks take in aligned buffers: then the number of blocks alone is the bound."""
    sizes = sorted((capacity_bytes(row.size_bytes) for row in rows), reverse=True)
    return sum(sizes[:blocks])
