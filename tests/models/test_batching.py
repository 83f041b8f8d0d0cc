"""A batch of requests in one pass gives what each gives alone."""

from pathlib import Path

import numpy as np
import pytest
import torch

from models.arena import Arena, ArenaCache
from models.attention import BatchRows, QueryRows
from models.batching import BatchCache
from models.forward import contiguous_rows, scattered_rows
from models.loading import LanguageModel
from tests.models.conftest import load

CPU = torch.device("cpu")
# Decode, a sparse pass, a question's rows, a whole prompt: what may meet in one pass.
REQUESTS = [([40], 41), ([3, 9, 10, 30, 31, 32], 33), (list(range(20, 27)), 27), (list(range(12)), 12)]


def arenas(model: LanguageModel) -> list[Arena]:
    generator = torch.Generator().manual_seed(3)
    made = []
    for _ in REQUESTS:
        arena = Arena(model.geometry, model.dtype, CPU, model.window)
        arena.reserve(64)
        arena.keys.copy_(torch.randn(arena.keys.shape, generator=generator))
        arena.values.copy_(torch.randn(arena.values.shape, generator=generator))
        made.append(arena)
    return made


def forward(
    model: LanguageModel, ids: torch.Tensor, cache: ArenaCache | BatchCache, rows: QueryRows | BatchRows
) -> torch.Tensor:
    with torch.inference_mode():
        out = model.backbone(
            input_ids=ids, position_ids=rows.positions[None], past_key_values=cache, use_cache=True, arena_rows=rows
        )
    return out.last_hidden_state[0]  # type: ignore[no-any-return]


def test_batched_equals_single(tiny_folder: Path) -> None:
    model = load(tiny_folder)
    parts = tuple(scattered_rows(np.array(positions), CPU) for positions, _ in REQUESTS)
    ends = [end for _, end in REQUESTS]
    ids = [torch.arange(5, 5 + len(positions))[None] for positions, _ in REQUESTS]
    alone, together = arenas(model), arenas(model)
    rows = BatchRows(parts)
    hidden = forward(model, torch.cat(ids, dim=1), BatchCache(together, rows, ends), rows)
    for number, at in enumerate(rows.slices()):
        cache = ArenaCache(alone[number], parts[number], ends[number])
        single = forward(model, ids[number], cache, parts[number])
        torch.testing.assert_close(hidden[at], single, atol=1e-4, rtol=1e-4)
        torch.testing.assert_close(together[number].keys, alone[number].keys, atol=1e-4, rtol=1e-4)
        torch.testing.assert_close(together[number].values, alone[number].values, atol=1e-4, rtol=1e-4)


def test_each_request_needs_an_arena_of_its_own(llama_folder: Path) -> None:
    model = load(llama_folder)
    rows = BatchRows((contiguous_rows(3, 1, CPU), contiguous_rows(5, 1, CPU)))
    arena = Arena(model.geometry, model.dtype, CPU, model.window)
    with pytest.raises(ValueError, match="each its own"):
        BatchCache([arena, arena], rows, [4, 6])
    with pytest.raises(ValueError, match="2 requests"):
        BatchCache([arena], rows, [4])
