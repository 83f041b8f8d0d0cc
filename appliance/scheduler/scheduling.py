"""The scheduling part: questions in the order they came, retrieved and planned; and the end of each."""

from collections.abc import Callable
from functools import partial

from appliance.answers import AnswerEvent, AnswerFinished, AnswerText
from appliance.reply import stopped_unread
from appliance.scheduler.base import Request
from appliance.scheduler.board import Board
from appliance.turns import Turns


class Scheduling:
    """Holds the model's turn while any question is under way. Run `run` on a thread of its own."""

    def __init__(self, board: Board, turns: Turns) -> None:
        self._board = board
        self._turns = turns
        self._holds_turn = False

    def run(self) -> None:
        """Until the board is closed and empty."""
        while (work := self._next()) is not None:
            work()

    def _next(self) -> Callable[[], None] | None:
        """What to do now, sleeping until there is something; None at the end."""
        board = self._board
        with board.lock:
            while True:
                if board.abandoned:
                    return board.abandoned.popleft().abandon
                if board.ending:
                    return partial(self._end, board.ending.popleft())
                if not self._holds_turn:
                    if board.waiting:
                        return self._take_turn
                    if board.closing and not board.active:
                        return None
                elif not board.active and (not board.waiting or self._turns.wanted):
                    return self._give_turn
                # Who else wants the turn gets it as soon as those under way have ended.
                elif not (self._turns.wanted and board.active) and (request := board.admit()) is not None:
                    return partial(self._prepare, request)
                board.changed.wait()

    def _take_turn(self) -> None:
        self._turns.take()
        self._holds_turn = True

    def _give_turn(self) -> None:
        self._holds_turn = False
        self._turns.give()

    def _prepare(self, request: Request) -> None:
        if request.unwanted:
            self._board.end(request)
            return
        try:
            prepared = request.answerer.prepare(request.question, request.collection)
        except Exception as error:  # noqa: BLE001 - it belongs to who asked, who raises it again
            request.error = error
            self._board.end(request)
            return
        request.reply = request.answerer.begin(prepared)
        request.channel.put(prepared.started)
        self._board.to_load(request)

    def _end(self, request: Request) -> None:
        """Give back what it holds, settle, tell the last events."""
        if request.begun is not None:
            request.begun.abandon()
        self._board.give_arena(request)
        last: list[AnswerEvent] = []
        try:
            last = _settled(request)
        except Exception as error:  # noqa: BLE001 - it belongs to who asked, who raises it again
            request.error = request.error or error
        self._board.ended(request)
        for event in last if request.error is None else ():
            request.channel.put(event)
        request.channel.end(request.error)


def _settled(request: Request) -> list[AnswerEvent]:
    """Settle the request; the events that are left to tell."""
    reply = request.reply
    if reply is None:
        return [AnswerFinished(stopped_unread(request.question))]
    piece = reply.finish()
    unkept = request.unkept
    if request.keep:
        unkept += request.answerer.settle(reply.prepared, request.finished)
    return [AnswerText(piece), AnswerFinished(reply.answer(unkept))]
