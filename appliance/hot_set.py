"""What follows from how often chunks are asked for: where their blocks lie, in which codec, and who keeps KV at all."""

import threading
from collections.abc import Callable, Sequence
from typing import Any

import torch

from appliance.budgets import device_budgets, host_budgets
from appliance.disk_budget import DiskBudget
from appliance.engine import Engine
from appliance.hotness import HotnessLog
from appliance.idle import IdleJob, missing_kv
from appliance.ingest import KvIngest
from appliance.neighbours import Neighbouring, NeighbourSettings, neighbour_job
from appliance.preloading import preload
from appliance.reencoding import Reencoding
from appliance.retrieval import Retriever
from appliance.settings import Settings
from appliance.turns import Turns
from storage.buffers import capacity_bytes
from storage.catalog import Catalog, RankedBlock
from storage.contexts import is_near
from storage.home import Home
from storage.placement import RecentPlacement, Shares, place_by_bytes, place_by_shares
from storage.store import BlockStore, StoreSettings


def store_settings(settings: Settings) -> StoreSettings:
    """Budgets of the memory tiers and how files are read."""
    budgets, _ = host_budgets(settings.budgets, settings.pageable_bytes)
    return StoreSettings(
        budgets["pageable"],
        settings.direct_reads,
        pinned_bytes=budgets["pinned"],
        gpu_bytes=budgets["gpu"],
        device="cuda" if settings.device != "cpu" and torch.cuda.is_available() else "cpu",
    )


class HotSet:
    """Counts uses, and has the store, the disk budget and the idle work follow. Thread-safe."""

    def __init__(self, settings: Settings, catalog: Catalog, store: BlockStore, turns: Turns) -> None:
        self._catalog = catalog
        self._store = store
        self._turns = turns
        self._budgets = settings.budgets
        self._neighbours = settings.neighbours
        self._engine: Engine | None = None
        self._near = False
        self.reason = host_budgets(settings.budgets, settings.pageable_bytes)[1]
        self.log = HotnessLog(catalog, flushed=self.place)
        self.budget = DiskBudget(Home(settings.home), catalog, store, settings.disk_bytes, turns.background)

    def serve(self, engine: Engine, near: bool = False) -> None:
        """From now on this model's blocks are the ones that count; of a chunk's blocks those behind neighbours (`near`)
        where `auto` takes them."""
        self._engine, self._near = engine, near
        if engine.model.device.type == "cuda" and (self._budgets is None or self._budgets.shares):
            # Only now it is known what the weights have left.
            granted, self.reason = device_budgets(
                engine.model.device, lambda: torch.cuda.mem_get_info(engine.model.device)[0]
            )
            for tier in self._store.tiers:
                if tier.name in granted:
                    tier.resize(granted[tier.name])
        self.budget.fingerprint = engine.fingerprint
        self.place()

    def memory(self) -> dict[str, dict[str, Any]]:
        """What the store's tiers hold, for `status`."""
        return self._store.memory()

    def place(self) -> None:
        """Rank the blocks anew: which tier each deserves (HA-RAG, Algorithm 2). Nothing moves before it is
        asked for; until the first question is counted the latest used stay."""
        if self._engine is None:
            return
        ranked, spare = self._ranked(self._engine)
        sizes = [(block.key, capacity_bytes(block.size_bytes)) for block in (*ranked, *spare)]
        if self._budgets is not None and self._budgets.shares:
            shares = Shares(self._budgets.gpu, self._budgets.pinned, self._budgets.pageable)
            self._store.place_by(place_by_shares(sizes, shares, len(ranked)))
        elif not ranked or not ranked[0].score:
            self._store.place_by(RecentPlacement())
        else:
            budgets = {tier.name: tier.state().budget_bytes for tier in self._store.tiers}
            self._store.place_by(place_by_bytes(sizes, budgets))

    def _ranked(self, engine: Engine) -> tuple[list[RankedBlock], list[RankedBlock]]:
        """The block of each chunk that `auto` loads, hottest first; and what strategies that are named may load."""
        found = self._catalog.ranked_blocks(engine.fingerprint, "self")
        own = [block for block in found if block.context == engine.reader.context]
        near = [block for block in found if is_near(block.context)]
        if not self._near:
            return own, near
        behind = {chunk for block in near for chunk in block.chunk_ids}
        alone = [block for block in own if not behind.issuperset(block.chunk_ids)]
        first = sorted((*near, *alone), key=lambda block: (-block.score, block.chunk_ids[0]))
        return first, [block for block in own if behind.issuperset(block.chunk_ids)]

    def room_for(self, chunk_ids: Sequence[int], size_bytes: int) -> bool:
        """Whether the disk budget has room for a block of these chunks; colder ones may go for it."""
        return self.budget.room_for(size_bytes, self.log.score(chunk_ids))

    def idle_jobs(
        self, open_kv: Callable[[], KvIngest], engine: Callable[[], Engine], retriever: Callable[[], Retriever]
    ) -> list[IdleJob]:
        """Missing KV first, then what was counted, what memory is to hold, what is to be encoded again, chunks to be
        read behind their neighbours, and what is over the budget."""

        def reencode(stop: threading.Event) -> str | None:
            loaded = engine()
            work = Reencoding(
                self._catalog, self._store, loaded, self._turns, loaded.profile, self.budget.room_for
            ).run(stop)
            if work.encoded or work.recomputed:
                self.place()
            return work.error

        def rank(stop: threading.Event) -> str | None:
            failure = self.log.job(stop)
            self.place()
            return failure

        def fetch_hot(stop: threading.Event) -> str | None:
            if self._engine is not None:
                ranked = self._ranked(self._engine)[0]
                preload(self._catalog, self._store, ranked, self._turns.let_questions_by, stop)
            return None

        def neighbouring() -> Neighbouring:
            parts = (self._catalog, self._store, engine(), self._turns, retriever().index, self.budget.room_for)
            return Neighbouring(*parts, NeighbourSettings(self._neighbours))

        return [missing_kv(open_kv), rank, fetch_hot, reencode, neighbour_job(neighbouring), self.budget.job]
