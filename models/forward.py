"""One way to run the model: given rows of a prompt, over the arena."""

from collections.abc import Sequence

import numpy as np
import torch

from models.arena import Arena, ArenaCache
from models.attention import QueryRows
from models.loading import LanguageModel


def run_rows(
    model: LanguageModel, arena: Arena, token_ids: Sequence[int] | np.ndarray, rows: QueryRows, end: int
) -> torch.Tensor:
    """Compute the tokens at `rows` over all slots below `end`; returns hidden states `[queries, hidden]`.

    Their keys and values are written to their slots. Everything they attend to (slots at or below their own
    position) must be placed before.
    """
    ids = torch.as_tensor(np.asarray(token_ids, dtype=np.int64), device=model.device)[None]
    with torch.inference_mode():
        hidden: torch.Tensor = model.backbone(
            input_ids=ids,
            position_ids=rows.positions[None],
            past_key_values=ArenaCache(arena, rows, end),
            use_cache=True,
            arena_rows=rows,
        ).last_hidden_state
    return hidden[0]


def contiguous_rows(first: int, count: int, device: torch.device) -> QueryRows:
    """Rows `first … first + count - 1`."""
    return QueryRows(torch.arange(first, first + count, device=device), first)


def scattered_rows(positions: np.ndarray, device: torch.device) -> QueryRows:
    """Rows at ascending positions; recognised as contiguous where they are."""
    first, count = int(positions[0]), len(positions)
    if int(positions[-1]) - first + 1 == count:
        return contiguous_rows(first, count, device)
    return QueryRows(torch.as_tensor(positions, dtype=torch.int64, device=device), None)


def next_token_logits(model: LanguageModel, hidden: torch.Tensor) -> torch.Tensor:
    """Logits `[vocabulary]` float32 after the last row of `hidden`."""
    with torch.inference_mode():
        logits: torch.Tensor = model.lm_head(hidden[-1:])[0].to(torch.float32)
    return logits
