"""Greedy decoding over the arena, and token ids to text as they come."""

import threading
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from models.executor import Executor
from models.forward import contiguous_rows, next_token_logits, run_rows

_INCOMPLETE = "\ufffd"
# Long enough that a list with like items passes, short enough that a loop is cut in its second round.
REPEATED_TOKENS = 12


def generate(
    executor: Executor,
    logits: torch.Tensor,
    position: int,
    max_new_tokens: int,
    stop: threading.Event | None = None,
) -> Iterator[int]:
    """Yield token ids, the likeliest each time, from `logits` after the prompt whose next slot is `position`.

    Ends at a stop token (which is not yielded), after `max_new_tokens`, where the answer begins to repeat itself, or
    as soon as `stop` is set. The arena must have been reserved with that much room.
    """
    model = executor.model
    told: list[int] = []
    for step in range(max_new_tokens):
        token = int(torch.argmax(logits))
        if token in model.stop_ids or (stop is not None and stop.is_set()):
            return
        told.append(token)
        if repeats(told):
            return
        yield token
        if step + 1 < max_new_tokens and not (stop is not None and stop.is_set()):
            rows = contiguous_rows(position + step, 1, model.device)
            hidden = run_rows(model, executor.arena, [token], rows, position + step + 1)
            logits = next_token_logits(model, hidden)


def repeats(ids: Sequence[int], span: int = REPEATED_TOKENS) -> bool:
    """Whether the last `span` ids stood somewhere before: greedy decoding that begins to repeat never stops alone."""
    last = list(ids[-span:])
    return len(ids) > span and any(list(ids[at : at + span]) == last for at in range(len(ids) - span))


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
