"""Greedy decoding a step at a time, for one answer or for several in one pass (FusionRAG, arXiv 2601.12904, §4.2).

The rows of a step belong to different questions, each with an arena of its own: everything but attention is computed
for all rows at once, so the weights are read once a step instead of once an answer.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from models.arena import Arena
from models.attention import BatchRows
from models.batching import BatchCache
from models.forward import contiguous_rows, embed_rows, final_norm, next_token_logits, run_cache, run_rows
from models.generation import repeats
from models.loading import LanguageModel
from models.stepping import steps_of


@dataclass(frozen=True)
class DecodeRow:
    """One token to compute: it takes the slot `position` of its question's arena."""

    token: int
    position: int
    arena: Arena


class Greedy:
    """One answer under way, the likeliest token each time. Ends as `models.generation.generate` does."""

    def __init__(self, model: LanguageModel, arena: Arena, position: int, max_new_tokens: int) -> None:
        """`position` is the first slot after the prompt."""
        self._model = model
        self._arena = arena
        self._position = position
        self._max_new_tokens = max_new_tokens
        self._told: list[int] = []
        self.ended = False

    def take(self, logits: torch.Tensor) -> int | None:
        """The next token of the answer from its logits `[vocabulary]`, or None where it ends without one."""
        token = int(torch.argmax(logits))
        self._told.append(token)
        if token in self._model.stop_ids or repeats(self._told):
            self.ended = True
            return None
        self.ended = len(self._told) == self._max_new_tokens
        return token

    @property
    def row(self) -> DecodeRow:
        """What the next step computes for this answer."""
        return DecodeRow(self._told[-1], self._position + len(self._told) - 1, self._arena)


def decode_rows(model: LanguageModel, rows: Sequence[DecodeRow]) -> torch.Tensor:
    """Logits float32 `[rows, vocabulary]` after each row. Every arena occurs once; all slots below a row are placed.

    One row goes the way that a single answer always goes (models/stepping), `decode_each` is the slow twin for all.
    """
    if len(rows) > 1:
        return _decode_together(model, rows)
    steps = steps_of(model)
    if steps is None:
        return decode_each(model, rows)
    return torch.stack([steps.logits(model, row.arena, row.position, row.token) for row in rows])


def decode_each(model: LanguageModel, rows: Sequence[DecodeRow]) -> torch.Tensor:
    """The twin of `decode_rows`: one row after another, each by a plain forward pass."""
    found = []
    for row in rows:
        where = contiguous_rows(row.position, 1, model.device)
        found.append(next_token_logits(model, run_rows(model, row.arena, [row.token], where, row.position + 1)))
    return torch.stack(found)


def _decode_together(model: LanguageModel, rows: Sequence[DecodeRow]) -> torch.Tensor:
    """All rows through each layer at once: they are the queries of one sequence, and attention keeps them apart."""
    where = BatchRows(tuple(contiguous_rows(row.position, 1, model.device) for row in rows))
    ends = [row.position + 1 for row in rows]
    cache = BatchCache([row.arena for row in rows], where, ends)
    hidden = embed_rows(model, [row.token for row in rows])
    hidden = run_cache(model, cache, hidden, where, max(ends), range(model.geometry.layers))
    with torch.inference_mode():
        logits: torch.Tensor = model.lm_head(final_norm(model, hidden)).to(torch.float32)
    return logits
