"""One way to run the model: given rows of a prompt, over the arena; whole, or a few layers at a time."""

from collections.abc import Sequence
from typing import Any

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
    hidden = embed_rows(model, token_ids)
    return final_norm(model, run_layers(model, arena, hidden, rows, end, range(model.geometry.layers)))


def embed_rows(model: LanguageModel, token_ids: Sequence[int] | np.ndarray) -> torch.Tensor:
    """What the first layer takes, `[queries, hidden]`."""
    ids = torch.as_tensor(np.asarray(token_ids, dtype=np.int64), device=model.device)
    embed: Any = model.backbone.embed_tokens
    with torch.inference_mode():
        hidden: torch.Tensor = embed(ids)
    return hidden


def run_layers(
    model: LanguageModel, arena: Arena, hidden: torch.Tensor, rows: QueryRows, end: int, layers: range
) -> torch.Tensor:
    """Run `hidden` `[queries, hidden]` of the tokens at `rows` through `layers`; returns what the next layer takes.

    Their keys and values are written to their slots of those layers alone. No final norm.
    """
    cos, sin = model.rotary.upto(end)
    cache = ArenaCache(arena, rows, end)
    with torch.inference_mode():
        turning = (cos[rows.positions][None].to(model.dtype), sin[rows.positions][None].to(model.dtype))
        states = hidden[None]
        for index in layers:
            states = model.layers[index](
                states,
                attention_mask=None,
                position_ids=rows.positions[None],
                position_embeddings=turning,
                past_key_values=cache,
                use_cache=True,
                arena_rows=rows,
            )
    return states[0]


def final_norm(model: LanguageModel, hidden: torch.Tensor) -> torch.Tensor:
    """The norm between the last layer and the logits, `[queries, hidden]`."""
    norm: Any = model.backbone.norm
    with torch.inference_mode():
        normed: torch.Tensor = norm(hidden)
    return normed


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
