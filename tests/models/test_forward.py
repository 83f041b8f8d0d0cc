"""Layers one at a time give what transformers' own pass over all of them gives."""

from pathlib import Path

import numpy as np
import pytest
import torch

from models.arena import Arena, ArenaCache
from models.attention import QueryRows
from models.forward import contiguous_rows, embed_rows, final_norm, run_layers, run_rows, scattered_rows
from models.loading import LanguageModel
from tests.models.conftest import load

TOKENS = 90
ROWS = {
    "one": np.array([TOKENS - 1]),
    "tail": np.arange(TOKENS - 7, TOKENS),
    "scattered": np.array([3, 4, 40, 41, 77, TOKENS - 1]),
    "all": np.arange(TOKENS),
}


@pytest.fixture(scope="module")
def ids() -> np.ndarray:
    return np.random.default_rng(5).integers(0, 250, TOKENS)


def by_transformers(model: LanguageModel, arena: Arena, ids: np.ndarray, rows: QueryRows, end: int) -> torch.Tensor:
    """The backbone's own forward, masks and rotary included."""
    with torch.inference_mode():
        hidden: torch.Tensor = model.backbone(
            input_ids=torch.as_tensor(ids, dtype=torch.int64)[None],
            position_ids=rows.positions[None],
            past_key_values=ArenaCache(arena, rows, end),
            use_cache=True,
            arena_rows=rows,
        ).last_hidden_state
    return hidden[0]


def filled(model: LanguageModel, ids: np.ndarray) -> Arena:
    arena = Arena(model.geometry, model.dtype, model.device, model.window)
    arena.reserve(TOKENS)
    by_transformers(model, arena, ids, contiguous_rows(0, TOKENS, model.device), TOKENS)
    return arena


@pytest.mark.parametrize("kind", ROWS)
def test_equals_transformers_own_pass(tiny_folder: Path, ids: np.ndarray, kind: str) -> None:
    model = load(tiny_folder)
    rows = scattered_rows(ROWS[kind], model.device)
    chosen = ids[ROWS[kind]][::-1].copy()  # other tokens than the arena holds, so that what is written shows
    arena, other = filled(model, ids), filled(model, ids)
    expected = by_transformers(model, other, chosen, rows, TOKENS)
    found = run_rows(model, arena, chosen, rows, TOKENS)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)
    torch.testing.assert_close(arena.keys, other.keys, rtol=0, atol=1e-5)
    torch.testing.assert_close(arena.values, other.values, rtol=0, atol=1e-5)


def test_in_pieces_equals_at_once(llama_folder: Path, ids: np.ndarray) -> None:
    """Also where rows are left out between layers, as a sparse pass does."""
    model = load(llama_folder)
    rows = contiguous_rows(0, TOKENS, model.device)
    arena, other = filled(model, ids), filled(model, ids)
    hidden = embed_rows(model, ids)
    for layer in range(model.geometry.layers):
        hidden = run_layers(model, arena, hidden, rows, TOKENS, range(layer, layer + 1))
    assert torch.equal(final_norm(model, hidden), run_rows(model, other, ids, rows, TOKENS))
    assert torch.equal(arena.keys, other.keys)


def test_only_the_named_layers_are_written(llama_folder: Path, ids: np.ndarray) -> None:
    model = load(llama_folder)
    arena = filled(model, ids)
    before = arena.keys.clone()
    rows = contiguous_rows(TOKENS - 4, 4, model.device)
    hidden = run_layers(model, arena, embed_rows(model, ids[:4]), rows, TOKENS, range(1))
    assert hidden.shape == (4, 64)
    assert not torch.equal(
        arena.keys[0, :, -4 - (arena.capacity - TOKENS) :], before[0, :, -4 - (arena.capacity - TOKENS) :]
    )
    assert torch.equal(arena.keys[1:], before[1:])
    assert torch.equal(arena.keys[0, :, : TOKENS - 4], before[0, :, : TOKENS - 4])
