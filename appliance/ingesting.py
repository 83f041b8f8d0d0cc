"""Ingesting: files become documents, and their KV is computed now, in idle time or never."""

import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from appliance.collection_names import check_collection_name
from appliance.engine import Engine
from appliance.hot_set import HotSet
from appliance.ingest import (
    DocumentIngest,
    IngestEstimate,
    IngestProgress,
    IngestReport,
    KvIngest,
    KvWork,
    estimate,
)
from appliance.loaded import LoadedModels
from appliance.one_line import one_line_errors
from appliance.settings import Settings
from appliance.turns import Turns
from storage.catalog import Catalog, CollectionRow
from storage.home import Home
from storage.store import BlockStore

Tell = Callable[[IngestProgress], None]


class Ingesting:
    """Brings documents into one data folder, one call after another; any thread may call.

    Reading and computing KV wait for their like alone: a file attached to a question does not wait for the KV of a
    library.
    """

    def __init__(
        self, settings: Settings, catalog: Catalog, store: BlockStore, models: LoadedModels, hot: HotSet, turns: Turns
    ) -> None:
        self._settings = settings
        self._home = Home(settings.home)
        self._catalog = catalog
        self._store = store
        self._models = models
        self._hot = hot
        self._turns = turns
        self._reading = threading.Lock()
        self._computing = threading.Lock()

    def ingest(
        self, paths: Sequence[Path], collection: str, kv: str, progress: Tell | None, keeps_kv: bool = False
    ) -> IngestReport:
        """See `Appliance.ingest`. With `keeps_kv` documents that are there already keep what was asked for their KV."""
        check_collection_name(collection)
        tell = progress or (lambda _: None)
        work, waited_s = KvWork(), 0.0
        with one_line_errors():
            engine = self._models.engine
            with self._reading:
                began_s = time.perf_counter()  # loading the models is no part of reading documents
                row = self._begin_collection(engine, collection)
                files = DocumentIngest(self._home, self._catalog, self._store, engine, self._turns, keeps_kv)
                entries, error = files.run(paths, row, kv, tell), files.error
            if kv == "now" and error is None:
                asked_s = time.perf_counter()
                with self._computing:
                    waited_s = time.perf_counter() - asked_s
                    blocks = self.open_kv()
                    work = blocks.run(blocks.pending(("now",), row.id), tell)
                error = work.error
        return IngestReport(
            tuple(entries),
            chunks=sum(entry.chunks for entry in entries if entry.state == "ready"),
            kv_bytes=work.bytes,
            seconds=time.perf_counter() - began_s - waited_s,
            kv_tokens=work.tokens,
            model_seconds=work.model_seconds + files.embedding_seconds,
            error=error,
            chunks_without_room=work.no_room,
        )

    def estimate(self, paths: Sequence[Path], collection: str, kv: str) -> IngestEstimate:
        """See `Appliance.estimate`."""
        check_collection_name(collection)
        with one_line_errors():
            return estimate(paths, self._models.engine, self._catalog, self._settings, collection, kv)

    def open_kv(self) -> KvIngest:
        """The second half of ingesting, over this folder."""
        return KvIngest(self._catalog, self._store, self._models.engine, self._turns, self._hot.room_for)

    def _begin_collection(self, engine: Engine, name: str) -> CollectionRow:
        embedding = engine.embedding
        return self._catalog.ensure_collection(
            name, embedding.fingerprint, embedding.dimensions, self._settings.chunk_tokens
        )
