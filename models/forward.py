"""One way to run the model: given rows of a prompt, over the arena; whole, or a few layers at a time."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from transformers.cache_utils import Cache

from models.arena import Arena, ArenaCache
from models.attention import BatchRows, QueryRows
from models.loading import LanguageModel

# Above so many rows torch's threads are quicker at the small steps than the fused layers' one.
FUSED_ROWS = 256


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
    return run_cache(model, ArenaCache(arena, rows, end), hidden, rows, end, layers, arena)


def run_cache(
    model: LanguageModel,
    cache: Cache,
    hidden: torch.Tensor,
    rows: QueryRows | BatchRows,
    end: int,
    layers: range,
    arena: Arena | None = None,
) -> torch.Tensor:
    """`run_layers` over any cache, such as several questions' at once; `end` is above every position.

    With `arena` its slots are written and read directly, where the fused layers do it.
    """
    cos, sin = model.rotary.upto(end)
    positions, fused = rows.positions, model.fused
    with torch.inference_mode():
        turning = (cos[positions].to(model.dtype), sin[positions].to(model.dtype))
        if fused is not None and len(hidden) <= FUSED_ROWS and not fused.hooked(layers):
            return fused.run(hidden, rows, turning, layers, cache, arena, end)
        states = hidden[None]
        for index in layers:
            states = model.layers[index](
                states,
                attention_mask=None,
                position_ids=positions[None],
                position_embeddings=(turning[0][None], turning[1][None]),
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
        if model.fused is not None and model.fused.head is not None:
            return model.fused.head(hidden[-1])
        logits: torch.Tensor = model.lm_head(hidden[-1:])[0].to(torch.float32)
    return logits
