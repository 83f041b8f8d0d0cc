"""Greedy decoding over the arena, and token ids to text as they come."""

import threading
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from typing import Any

import torch

from models.arena import Arena
from models.executor import Executor
from models.forward import contiguous_rows, next_token_logits, run_rows
from models.loading import LanguageModel
from models.stepping import Pending, Steps, steps_of

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
    model, told = executor.model, list[int]()
    steps = steps_of(model)
    with closing(
        _passes(executor, logits, position, max_new_tokens, stop)
        if steps is None
        else steps_ahead(steps, model, executor.arena, int(logits.argmax()), position, max_new_tokens, stop)
    ) as tokens:
        for token in tokens:
            if token in model.stop_ids or (stop is not None and stop.is_set()):
                return
            told.append(token)
            if repeats(told):
                return
            yield token


def _passes(
    executor: Executor, logits: torch.Tensor, position: int, most: int, stop: threading.Event | None
) -> Generator[int]:
    """The likeliest tokens, by a forward pass each; none is computed before it is asked for."""
    model = executor.model
    for step in range(most):
        token = int(torch.argmax(logits))
        yield token
        if step + 1 < most and not (stop is not None and stop.is_set()):
            rows = contiguous_rows(position + step, 1, model.device)
            hidden = run_rows(model, executor.arena, [token], rows, position + step + 1)
            logits = next_token_logits(model, hidden)


def steps_ahead(
    steps: Steps,
    model: LanguageModel,
    arena: Arena,
    first: int,
    position: int,
    most: int,
    stop: threading.Event | None = None,
) -> Generator[int]:
    """`first` and the likeliest tokens after it by steps: the next is queued before a token is told, so none waits.

    `first` takes the slot `position`. At most one step is computed in vain; none is under way when this is closed.
    """
    if most:
        yield first  # before anything is queued: a step of a new shape takes its time the first time
    token: int | Pending = first
    last: Pending | None = None
    try:
        for step in range(1, most):
            if stop is not None and stop.is_set():
                return
            last = steps.launch(model, arena, position + step - 1, token)
            if isinstance(token, Pending):
                yield token.read()
            token = last
        if last is not None:
            yield last.read()
    finally:
        if last is not None:
            last.wait()


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
