"""Greedy decoding over the arena, and token ids to text as they come."""

import threading
from collections.abc import Iterator
from typing import Any

import torch

from models.executor import Executor
from models.forward import contiguous_rows, next_token_logits, run_rows

_INCOMPLETE = "\ufffd"


def generate(
    executor: Executor,
    logits: torch.Tensor,
    position: int,
    max_new_tokens: int,
    stop: threading.Event | None = None,
) -> Iterator[int]:
    """Yield token ids, the likeliest each time, from `logits` after the prompt whose next slot is `position`.

    Ends at a stop token (which is not yielded), after `max_new_tokens`, or as soon as `stop` is set. The arena must
    have been reserved with that much room.
    """
    model = executor.model
    for step in range(max_new_tokens):
        token = int(torch.argmax(logits))
        if token in model.stop_ids or (stop is not None and stop.is_set()):
            return
        yield token
        if step + 1 < max_new_tokens and not (stop is not None and stop.is_set()):
            rows = contiguous_rows(position + step, 1, model.device)
            hidden = run_rows(model, executor.arena, [token], rows, position + step + 1)
            logits = next_token_logits(model, hidden)


class TextStream:
    """Turns token ids into text pieces; a character that spans tokens is held back until it is whole."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self._ids: list[int] = []
        self.text = ""

    def push(self, token: int) -> str:
        """The text that this token completes, possibly empty."""
        self._ids.append(token)
        text = self._tokenizer.decode(self._ids, skip_special_tokens=True)
        if text.endswith(_INCOMPLETE):
            return ""
        piece = str(text[len(self.text) :])
        self.text = str(text)
        return piece

    def finish(self) -> str:
        """What was still held back."""
        text = str(self._tokenizer.decode(self._ids, skip_special_tokens=True))
        piece, self.text = text[len(self.text) :], text
        return piece
