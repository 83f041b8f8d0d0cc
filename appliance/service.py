"""The appliance as everything above uses it: one data folder, one engine, one object.

Every error that leaves this object is an `ApplianceError` whose message is one line for the user.
"""

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from appliance.answers import Answer, AnswerEvent, AnswerFinished, AnswerStarted, AnswerText, Source
from appliance.asking import Asked, Asking
from appliance.collection_names import find_collection
from appliance.engine import Engine
from appliance.errors import ApplianceError, UnknownDocument
from appliance.hot_set import HotSet, store_settings
from appliance.idle import IdleWork
from appliance.ingest import DocumentEntry, IngestEstimate, IngestProgress, IngestReport
from appliance.ingesting import Ingesting
from appliance.listing import DocumentSummary, summarise
from appliance.loaded import LoadedModels
from appliance.one_line import one_line_errors
from appliance.removal import recover, remove_document
from appliance.retrieval import Retriever
from appliance.settings import (
    DEFAULT_COLLECTION,
    DEFAULT_MAX_NEW_TOKENS,
    DEFAULT_TOP_K,
    EMBEDDED_MODEL,
    Settings,
)
from appliance.status import read_status
from appliance.turns import Turns
from models.strategies import DEFAULT_RATIO, DEFAULT_SELECT
from storage.catalog import Catalog
from storage.errors import HomeBusy, UnknownRow
from storage.home import Home
from storage.lock import HomeLock
from storage.store import BlockStore


class Appliance:
    """Open with `Appliance.open`, use from any thread, close. Models are loaded at the first use that needs them."""

    def __init__(self, settings: Settings, catalog: Catalog, lock: HomeLock | None) -> None:
        self.settings = settings
        self.home = Home(settings.home)
        self.catalog = catalog
        self.writable = lock is not None
        self.turns = Turns()
        self.store = BlockStore(self.home, catalog, store_settings(settings), pause=self.turns.let_questions_by)
        self.hot = HotSet(settings, catalog, self.store, self.turns)
        self._models = LoadedModels(settings, catalog, self.hot, self.writable)
        self._asking = Asking(settings, catalog, self.store, self._models, self.hot, self.turns, self.writable)
        self._lock = lock
        self._ingesting = Ingesting(settings, catalog, self.store, self._models, self.hot, self.turns)
        self._idle: IdleWork | None = None

    @classmethod
    def open(cls, settings: Settings, read_only_if_busy: bool = False) -> Self:
        """Open the data folder and clean up after a kill. Raises ApplianceError if another process uses it.

        With `read_only_if_busy` a folder in use, or one we may not write, is opened for reading: nothing is kept.
        """
        with one_line_errors():
            home = Home(settings.home)
            if read_only_if_busy and home.root.is_dir() and not os.access(home.root, os.W_OK):
                return cls(settings, Catalog.open(home, read_only=True), None)
            lock = HomeLock(home)
            try:
                lock.acquire()
            except HomeBusy:
                if not read_only_if_busy:
                    raise
                return cls(settings, Catalog.open(home, read_only=True), None)
            except OSError as error:
                raise ApplianceError(
                    f"{home.root} cannot be used ({error.strerror}): name another with --home"
                ) from error
            try:
                appliance = cls(settings, Catalog.open(home), lock)
                recover(appliance.home, appliance.catalog, appliance.store)
            except BaseException:
                lock.release()
                raise
            return appliance

    @property
    def engine(self) -> Engine:
        """The models, loaded once. Raises ApplianceError."""
        return self._models.engine

    @property
    def retriever(self) -> Retriever:
        """Search over the catalog with the embedding model."""
        return self._models.retriever

    def prepare(self, collection: str | None = None) -> None:
        """Load the models, and a collection's vectors, now, so that the first question need not wait for them."""
        retriever = self.retriever
        with self.turns.question():
            self.engine.warm()
            self._models.planner()
        row = next((row for row in self.catalog.collections() if row.name == collection), None)
        if row is not None:
            with one_line_errors():
                retriever.warm(row.id)

    def collections(self) -> list[str]:
        """Names, oldest first."""
        return [row.name for row in self.catalog.collections()]

    def documents(self, collection: str | None = None) -> list[DocumentSummary]:
        """The documents of one collection or of all. Raises UnknownCollection."""
        names = {row.id: row.name for row in self.catalog.collections()}
        chosen = None if collection is None else find_collection(self.catalog, collection).id
        with one_line_errors():
            documents = self.catalog.documents(chosen)
            engine = self._models.present
            fingerprint = None if engine is None else engine.fingerprint
            return [summarise(self.catalog, row, names[row.collection_id], fingerprint) for row in documents]

    def ingest(
        self,
        paths: Sequence[Path],
        collection: str = DEFAULT_COLLECTION,
        kv: str = "now",
        progress: Callable[[IngestProgress], None] | None = None,
    ) -> IngestReport:
        """Read files and folders; `kv` says when their KV is computed: `now`, `idle` (by `serve`) or `off`.

        Bad files are entries of the report, the others go in. A full disk ends the run with its `error` set; what is
        durable stays. Raises ApplianceError where nothing can be done at all.
        """
        report = self._ingesting.ingest(paths, collection, kv, progress)
        if self._idle is not None:
            self._idle.wake()
        return report

    def attach(
        self,
        paths: Sequence[Path],
        collection: str = DEFAULT_COLLECTION,
        progress: Callable[[IngestProgress], None] | None = None,
    ) -> IngestReport:
        """Read files to ask about at once: `document_ids` of the report is what `ask` takes as `documents`.

        No KV is computed ahead: the first question computes the chunks it needs and keeps their blocks, idle work does
        the rest. A document that was there keeps what was asked for its KV. Errors are those of `ingest`.
        """
        report = self._ingesting.ingest(paths, collection, "idle", progress, keeps_kv=True)
        if self._idle is not None:
            self._idle.wake()
        return report

    def estimate(self, paths: Sequence[Path], collection: str = DEFAULT_COLLECTION, kv: str = "now") -> IngestEstimate:
        """What ingesting would cost; stores nothing. `open_and_estimate` does it without opening the folder."""
        return self._ingesting.estimate(paths, collection, kv)

    def ask(
        self,
        question: str,
        collection: str = DEFAULT_COLLECTION,
        strategy: str = "auto",
        top_k: int = DEFAULT_TOP_K,
        max_new_tokens: int = DEFAULT_MAX_NEW_TOKENS,
        stop: threading.Event | None = None,
        ratio: float = DEFAULT_RATIO,
        select: str = DEFAULT_SELECT,
        documents: Sequence[str] = (),
    ) -> Iterator[AnswerEvent]:
        """Events of one answer (see answers.py). Closing the stream, or setting `stop`, ends the model's work.

        `documents` are ids of those that the question is about: at least half of the `top_k` chunks come from them.
        Several threads may ask at once. `ratio` and `select` are StrategyOptions. Raises Busy where too many wait,
        UnknownDocument for a document that the collection does not have.
        """
        asked = Asked(question, collection, strategy, top_k, max_new_tokens, ratio, select, documents)
        try:
            yield from self._asking.ask(asked, stop, None if self._idle is None else self._idle.soon)
        finally:
            self._after_answer()

    def answer(self, question: str, **options: Any) -> Answer:
        """The finished answer, for callers that do not stream."""
        for event in self.ask(question, **options):
            if isinstance(event, AnswerFinished):
                return event.answer
        raise ApplianceError("the answer ended early: ask again")

    def remove(self, document_id: str) -> None:
        """Delete a document and every copy of it. Raises UnknownDocument."""
        try:
            with one_line_errors(), self.turns.question():
                collection_id = self.catalog.document(document_id).collection_id
                remove_document(self.home, self.catalog, self.store, document_id)
                self._models.forget(collection_id)
        except ApplianceError as error:
            if isinstance(error.__cause__, UnknownRow):
                raise UnknownDocument(str(error)) from error
            raise

    def find_document(self, text: str) -> str:
        """The id of a document named by id, path, file name or title. Raises UnknownDocument."""
        try:
            return self.catalog.find_document(text).id
        except UnknownRow as error:
            raise UnknownDocument(str(error)) from error

    def status(self) -> dict[str, Any]:
        """What `appliance status --json` prints, with what this process holds in memory.

        `idle_failure` is why background work could not go on, in one line, or None.
        """
        memory = {**self.store.memory(), "reason": self.hot.reason}
        failure = None if self._idle is None else self._idle.failure
        told = {"memory": memory, "idle_failure": failure, "questions": self._asking.counts()}
        return {**read_status(self.settings), **told}

    def describe(self) -> dict[str, str]:
        """A few words for the page's footer."""
        choices = self.engine.choices
        small = "the embedded model is small: name a bigger one with --model for better answers"
        embedded = self.settings.model.endswith(EMBEDDED_MODEL)
        return {"model": choices["model"], "device": choices["device"], "note": small if embedded else ""}

    def start_idle_work(self) -> None:
        """Compute waiting KV (`--kv idle`, and what a kill left) while no question is asked. Safe to repeat."""
        if self._idle is None and self.writable:
            self.store.set_missing_aside()
            jobs = self.hot.idle_jobs(self._ingesting.open_kv, lambda: self.engine, lambda: self.retriever)
            self._idle = IdleWork(jobs, self.catalog.count)

    def close(self) -> None:
        """Stop background work, give up the lock. Safe to repeat."""
        failure = None if self._idle is None else self._idle.failure
        self._asking.close()  # first: background work may wait for the turn of a question
        if self._idle is not None:
            self._idle.close()
            self._idle = None
        if self.writable:
            self.hot.log.close()
        self._models.close(failure)
        self.catalog.close()
        if self._lock is not None:
            self._lock.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _after_answer(self) -> None:
        """Outside the turn, so that the next question need not wait for a disk."""
        if self._idle is not None:
            self._idle.soon()
        elif self.writable:
            self.hot.log.flush_when_full()


__all__ = [
    "Answer",
    "AnswerEvent",
    "AnswerFinished",
    "AnswerStarted",
    "AnswerText",
    "Appliance",
    "DocumentEntry",
    "DocumentSummary",
    "IngestEstimate",
    "IngestProgress",
    "IngestReport",
    "Source",
]
