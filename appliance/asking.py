"""Asking: what a question is checked for before anything is loaded, and who carries it out."""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from appliance.answering import Answerer
from appliance.answers import AnswerEvent
from appliance.collection_names import find_collection
from appliance.errors import ApplianceError
from appliance.hot_set import HotSet
from appliance.loaded import LoadedModels
from appliance.one_line import one_line_errors
from appliance.planner import Planner
from appliance.reply import Question
from appliance.scheduler import Scheduler, SchedulerSettings
from appliance.settings import (
    DEFAULT_COLLECTION,
    DEFAULT_MAX_NEW_TOKENS,
    DEFAULT_TOP_K,
    LARGEST_TOP_K,
    Settings,
)
from appliance.turns import Turns
from models.strategies import DEFAULT_RATIO, DEFAULT_SELECT, StrategyOptions, find_strategy
from storage.catalog import Catalog
from storage.store import BlockStore


@dataclass(frozen=True)
class Asked:
    """What `Appliance.ask` was given; `documents` are ids of those that the question is about.

    Raises ApplianceError for what no model is needed to refuse.
    """

    question: str
    collection: str = DEFAULT_COLLECTION
    strategy: str = "auto"
    top_k: int = DEFAULT_TOP_K
    max_new_tokens: int = DEFAULT_MAX_NEW_TOKENS
    ratio: float = DEFAULT_RATIO
    select: str = DEFAULT_SELECT
    documents: Sequence[str] = ()

    def __post_init__(self) -> None:
        if not 1 <= self.top_k <= LARGEST_TOP_K:
            raise ApplianceError(f"top-k is {self.top_k}: choose 1 to {LARGEST_TOP_K}")
        if self.max_new_tokens < 1:
            raise ApplianceError(f"max-new-tokens is {self.max_new_tokens}: choose 1 or more")
        with one_line_errors():
            options = self.options
            if self.strategy != "auto":
                find_strategy(self.strategy, options)

    @property
    def options(self) -> StrategyOptions:
        """What was chosen of the strategy."""
        return StrategyOptions(self.ratio, self.select)


class Asking:
    """Answers questions of any thread: several at once by the scheduler, or one after another (`scheduling` plain)."""

    def __init__(
        self,
        settings: Settings,
        catalog: Catalog,
        store: BlockStore,
        models: LoadedModels,
        hot: HotSet,
        turns: Turns,
        writable: bool,
    ) -> None:
        self._settings = settings
        self._catalog = catalog
        self._store = store
        self._models = models
        self._hot = hot
        self._turns = turns
        self._writable = writable
        self._beginning = threading.Lock()
        self._scheduler: Scheduler | None = None

    def ask(
        self, asked: Asked, stop: threading.Event | None = None, later: Callable[[], None] | None = None
    ) -> Iterator[AnswerEvent]:
        """Events of one answer (see answers.py). Raises ApplianceError; `later` as Answerer has it."""
        engine, retriever = self._models.engine, self._models.retriever
        question = Question(
            asked.question,
            asked.strategy,
            asked.top_k,
            asked.max_new_tokens,
            time.perf_counter(),
            options=asked.options,
            documents=tuple(asked.documents),
        )
        with one_line_errors():
            row = find_collection(self._catalog, asked.collection)
            planner = self._planner() if asked.strategy == "auto" else None
            parts = (engine, self._catalog, self._store, retriever, None, planner, self._hot, later)
            answerer = Answerer(*parts, self._models.gate)
            if self._settings.scheduling == "plain":
                with self._turns.question():
                    yield from answerer.answer(question, row, stop, self._writable)
            else:
                yield from self._open_scheduler().ask(question, row, answerer, stop, self._writable)

    def counts(self) -> dict[str, int]:
        """For `status`: questions queued, running, cancelled and refused, arenas that are free. Empty before any."""
        return {} if self._scheduler is None else self._scheduler.counts()

    def wait_until_idle(self, seconds: float | None = None) -> bool:
        """Wait until no question is under way; False after `seconds`."""
        return self._scheduler is None or self._scheduler.wait_until_idle(seconds)

    def close(self) -> None:
        """End what is under way. Safe to repeat."""
        with self._beginning:
            if self._scheduler is not None:
                self._scheduler.close()

    def _open_scheduler(self) -> Scheduler:
        with self._beginning:
            if self._scheduler is None:
                bounds = SchedulerSettings(self._settings.answers_at_once, self._settings.questions_waiting)
                self._scheduler = Scheduler(self._models.engine.executor, self._turns, bounds)
            return self._scheduler

    def _planner(self) -> Planner:
        """Measuring the computer, which is done once, needs the model for itself."""
        if not self._models.plans:
            with self._turns.question():
                return self._models.planner()
        return self._models.planner()
