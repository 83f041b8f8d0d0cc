"""The models of one process and what hangs on them, each made at the first use that needs it."""

import json
import platform
import threading

from appliance.engine import Engine, open_engine
from appliance.gate import Gate, find_gate
from appliance.hot_set import HotSet
from appliance.one_line import one_line_errors
from appliance.planner import Planner, keep_rates, read_rates
from appliance.retrieval import Retriever
from appliance.settings import Settings
from appliance.status import count_memory_troubles, remember_memory
from storage.catalog import Catalog
from storage.home import Home

RATES_FILE = "rates.json"
# What the rates depend on besides the model.
_OF_THE_COMPUTER = ("device", "weights", "dtype", "placer", "linears", "attention", "reads", "codec")


class LoadedModels:
    """Engine, retriever and planner of one data folder. Any thread may ask."""

    def __init__(self, settings: Settings, catalog: Catalog, hot: HotSet, writable: bool) -> None:
        self._settings = settings
        self._home = Home(settings.home)
        self._catalog = catalog
        self._hot = hot
        self._writable = writable
        self._loading = threading.Lock()
        self._engine: Engine | None = None
        self._retriever: Retriever | None = None
        self._planner: Planner | None = None
        self._gate: Gate | None = None

    @property
    def present(self) -> Engine | None:
        """The engine if it is loaded."""
        return self._engine

    @property
    def engine(self) -> Engine:
        """The models, loaded once. Raises ApplianceError."""
        with self._loading, one_line_errors():
            if self._engine is None:
                self._engine = open_engine(self._settings, keep=self._writable)
                self._gate = find_gate(self._home, self._engine.fingerprint)
                self._hot.serve(self._engine, near=self._gate.safest().strategy == "fusion")
                if self._writable:
                    remember_memory(self._home, self._hot.memory(), self._hot.reason)
            return self._engine

    @property
    def retriever(self) -> Retriever:
        """Search over the catalog with the embedding model."""
        engine = self.engine
        if self._retriever is None:
            self._retriever = Retriever(self._catalog, engine.embedding)
        return self._retriever

    @property
    def gate(self) -> Gate:
        """What the last calibration says `auto` may do with this model; looked up once."""
        return self._gate or find_gate(self._home, self.engine.fingerprint)

    @property
    def plans(self) -> bool:
        """Whether the planner is there."""
        return self._planner is not None

    def planner(self) -> Planner:
        """The planner with the rates of this computer: those measured before, else measured now. Needs the model's
        turn."""
        if self._planner is None:
            from appliance.planner.measure import measure_rates

            engine, file = self.engine, self._home.root / RATES_FILE
            chosen = [engine.choices[name] for name in _OF_THE_COMPUTER]
            disk = str(self._home.root.stat().st_dev)
            identity = json.dumps([engine.fingerprint, platform.node(), disk, *chosen])
            rates = read_rates(file, identity)
            if rates is None:
                engine.warm()
                rates = measure_rates(engine, self._home.temporary if self._writable else None)
                if self._writable:
                    keep_rates(file, identity, rates)
            self._planner = Planner(rates)
        return self._planner

    def forget(self, collection_id: int) -> None:
        """Drop a collection's vectors from memory: they are its documents, too."""
        if self._retriever is not None:
            self._retriever.forget(collection_id)

    def close(self, idle_failure: str | None = None) -> None:
        """Stop the loader's threads, and remember what the memory tiers held, for `status`. Safe to repeat."""
        if self._engine is None:
            return
        if self._writable:
            memory = self._hot.memory()
            remember_memory(self._home, memory, self._hot.reason, idle_failure)
            count_memory_troubles(self._catalog, memory)
        self._engine.close()
        self._engine = None
