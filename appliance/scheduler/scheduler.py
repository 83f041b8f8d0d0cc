"""The scheduler as asking sees it: a question in, its events out, from any thread."""

import threading
from collections.abc import Iterator

from appliance.answering import Answerer
from appliance.answers import AnswerEvent
from appliance.reply import Question
from appliance.scheduler.base import Request, SchedulerSettings
from appliance.scheduler.board import Board
from appliance.scheduler.channel import Channel
from appliance.scheduler.inference import Inference
from appliance.scheduler.loading import Loading
from appliance.scheduler.scheduling import Scheduling
from appliance.stopping import Stop
from appliance.turns import Turns
from models.arena import Arena
from models.executor import Executor
from storage.catalog import CollectionRow


class Scheduler:
    """Three threads over one board, for one executor. Open once, ask from any thread, close."""

    def __init__(self, executor: Executor, turns: Turns, settings: SchedulerSettings | None = None) -> None:
        self._settings = settings or SchedulerSettings()
        model = executor.model
        more = [
            Arena(model.geometry, model.dtype, model.device, model.window) for _ in range(self._settings.arenas - 1)
        ]
        # The executor's own is used last and first: a single question finds it warm.
        self._board = Board(self._settings, [*more, executor.arena])
        parts = {
            "question-scheduler": Scheduling(self._board, turns).run,
            "question-loader": Loading(self._board, executor).run,
            "question-inference": Inference(self._board, executor).run,
        }
        self._threads = [threading.Thread(target=run, name=name, daemon=True) for name, run in parts.items()]
        for thread in self._threads:
            thread.start()

    def ask(
        self,
        question: Question,
        collection: CollectionRow,
        answerer: Answerer,
        stop: threading.Event | None = None,
        keep: bool = True,
    ) -> Iterator[AnswerEvent]:
        """Events of one answer, as `Answerer.answer` gives them; a closed stream leaves at once.

        A `Stop` that is set is heeded at once, another event before the next step. Raises Busy where the queue is full.
        """
        channel = Channel(self._settings.ahead_tokens, self._board.drained)
        request = Request(question, collection, answerer, keep, channel, stop)
        self._board.submit(request)
        if isinstance(stop, Stop):
            stop.listen(lambda: self._board.leave(request))
        try:
            yield from channel.read()
        finally:
            request.cancelled = True
            self._board.leave(request)

    def counts(self) -> dict[str, int]:
        """Requests now `queued` and `running`, so far `cancelled` and `refused`, and `arenas_free`."""
        return self._board.counts()

    def wait_until_idle(self, seconds: float | None = None) -> bool:
        """Wait until no question is under way; False after `seconds`."""
        return self._board.wait_until_idle(seconds)

    def close(self) -> None:
        """End every question, those under way with an error for who reads them, and the threads. Safe to repeat."""
        self._board.close()
        for thread in self._threads:
            thread.join()
