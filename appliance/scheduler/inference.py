"""The inference part: alone runs the language model, one pass after another."""

import torch

from appliance.answers import AnswerText
from appliance.scheduler.base import Request
from appliance.scheduler.board import Board
from models.decoding import Greedy, decode_rows
from models.executor import Abandoned, Executor


class Inference:
    """Reads the prompt of one request, or decodes one token of all that run. Run `run` on a thread of its own."""

    def __init__(self, board: Board, executor: Executor) -> None:
        self._board = board
        self._executor = executor

    def run(self) -> None:
        """Until the board is closed and empty."""
        while (work := self._board.next_to_compute()) is not None:
            if isinstance(work, Request):
                self._read(work)
            else:
                self._decode(work)

    def _read(self, request: Request) -> None:
        """Compute the prompt's last row, and tell the first token."""
        begun, reply, arena = request.begun, request.reply, request.arena
        if begun is None or reply is None or arena is None:
            self._board.end(request)
            return
        try:
            execution = self._executor.finish(begun)
            request.answerer.executed(reply, execution)
            prepared = reply.prepared
            most = prepared.question.max_new_tokens
            request.row = Greedy(self._executor.model, arena, prepared.prompt.tokens, most)
        except Exception as error:  # noqa: BLE001 - it belongs to who asked, who raises it again
            self._fail(request, error)
            return
        self._board.to_run(request)
        self._advance(request, execution.logits)

    def _decode(self, requests: list[Request]) -> None:
        """One step of all; where that fails, of each alone, so that only those that cannot go on end."""
        rows = [request.row.row for request in requests if request.row is not None]
        try:
            logits = decode_rows(self._executor.model, rows)
        except Exception as error:  # noqa: BLE001 - it belongs to who asked, who raises it again
            if len(requests) == 1:
                self._fail(requests[0], error)
                return
            for request in requests:
                self._decode([request])
        else:
            for request, its_logits in zip(requests, logits, strict=True):
                self._advance(request, its_logits)

    def _advance(self, request: Request, logits: torch.Tensor) -> None:
        """Take the next token; what is not wanted any more is ended by the board, before the next step."""
        row, reply = request.row, request.reply
        if row is None or reply is None or request.unwanted:
            return
        try:
            token = row.take(logits)
            if token is not None:
                request.channel.put(AnswerText(reply.push(token)))
            if row.ended:
                request.answerer.learn(reply)
                if request.keep:
                    request.unkept = request.answerer.compute_absent(reply.prepared)
                request.finished = True
                self._board.end(request)
        except Exception as error:  # noqa: BLE001 - it belongs to who asked, who raises it again
            self._fail(request, error)

    def _fail(self, request: Request, error: Exception) -> None:
        """One request's error ends that request. One that was abandoned has none."""
        if not isinstance(error, Abandoned):
            request.error = request.error or error
        self._board.end(request)
