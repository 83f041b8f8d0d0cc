"""The loading part: blocks of the next questions come into their arenas while others are computed."""

from appliance.scheduler.base import Request
from appliance.scheduler.board import Board
from models.executor import Executor


class Loading:
    """Begins the loads of every planned request, in order. Run `run` on a thread of its own.

    A request's loads all begin at once, behind those of the requests before it (request-level loading: FusionRAG §4.2).
    """

    def __init__(self, board: Board, executor: Executor) -> None:
        self._board = board
        self._executor = executor

    def run(self) -> None:
        """Until the board is closed and empty."""
        while (request := self._board.next_to_load()) is not None:
            self._begin(request)

    def _begin(self, request: Request) -> None:
        if request.reply is None or request.unwanted:
            self._board.end(request)
            return
        prepared = request.reply.prepared
        room_tokens = prepared.question.max_new_tokens
        try:
            begun = self._executor.begin(prepared.prompt, prepared.plan, prepared.source, room_tokens, request.arena)
        except Exception as error:  # noqa: BLE001 - it belongs to who asked, who raises it again
            request.error = error
            self._board.end(request)
            return
        self._board.to_land(request, begun)
