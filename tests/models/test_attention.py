"""Attention over the arena: any CPU's paths against transformers' own eager attention, masked by where tokens stand."""

import numpy as np
import pytest
import torch
from torch import nn
from transformers.models.llama.modeling_llama import eager_attention_forward

from models.attention import (
    GROUPED_QUERY_LIMIT,
    QueryRows,
    arena_attention,
    blocked_attention,
    grouped_attention,
    masked_attention,
)
from models.forward import contiguous_rows, scattered_rows

CPU = torch.device("cpu")
DIM = 16
HEADS = [(1, 1), (4, 4), (4, 2), (6, 2), (9, 3), (8, 1)]
each_heads = pytest.mark.parametrize(("heads", "kv_heads"), HEADS)
PATHS = [grouped_attention, blocked_attention, masked_attention, arena_attention]
each_path = pytest.mark.parametrize("path", PATHS)


def tensors(heads: int, kv_heads: int, queries: int, slots: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(heads * 1000 + queries)
    shapes = ((1, heads, queries, DIM), (1, kv_heads, slots, DIM), (1, kv_heads, slots, DIM))
    query, key, value = (torch.randn(shape, generator=generator) for shape in shapes)
    return query * 3, key, value


def eager(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, rows: QueryRows, scale: float) -> torch.Tensor:
    """transformers' reference, `[1, heads, queries, head_dim]`."""
    module = nn.Module()
    module.num_key_value_groups = query.shape[1] // key.shape[1]  # type: ignore[assignment]
    module.eval()
    seen = torch.arange(key.shape[2])[None, :] <= rows.positions[:, None]
    mask = torch.zeros(seen.shape).masked_fill(~seen, torch.finfo(torch.float32).min)[None, None]
    out: torch.Tensor = eager_attention_forward(module, query, key, value, mask, scaling=scale)[0]
    return out.transpose(1, 2)


def run(
    path: object, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, rows: QueryRows, scale: float
) -> torch.Tensor:
    if path is arena_attention:
        out, weights = arena_attention(nn.Module(), query, key, value, None, scaling=scale, arena_rows=rows)
        assert weights is None
        return out.transpose(1, 2)
    chosen = next(each for each in (grouped_attention, blocked_attention, masked_attention) if each is path)
    return chosen(query, key, value, rows, scale)


def check(path: object, rows: QueryRows, slots: int, heads: int, kv_heads: int, scale: float = 0.25) -> None:
    query, key, value = tensors(heads, kv_heads, len(rows.positions), slots)
    found = run(path, query, key, value, rows, scale)
    torch.testing.assert_close(found, eager(query, key, value, rows, scale), atol=1e-5, rtol=1e-4)


@each_path
@each_heads
@pytest.mark.parametrize("queries", [1, 2, 7, 40])
def test_a_tail_equals_eager(path: object, heads: int, kv_heads: int, queries: int) -> None:
    check(path, contiguous_rows(50 - queries, queries, CPU), 50, heads, kv_heads)


@each_path
@each_heads
def test_a_whole_prompt_equals_eager(path: object, heads: int, kv_heads: int) -> None:
    check(path, contiguous_rows(0, 33, CPU), 33, heads, kv_heads)


@each_path
@each_heads
@pytest.mark.parametrize("positions", [[0], [17], [0, 49], [3, 4, 5, 20, 48], [1, 2, 3, 47, 48, 49]])
def test_scattered_rows_equal_eager(path: object, heads: int, kv_heads: int, positions: list[int]) -> None:
    check(path, scattered_rows(np.array(positions), CPU), 50, heads, kv_heads)


@each_path
@pytest.mark.parametrize("first", [0, 5, 20])
def test_rows_in_the_middle_equal_eager(path: object, first: int) -> None:
    """A run that does not reach the last slot: the slots behind it are later."""
    check(path, contiguous_rows(first, 10, CPU), 50, 4, 2)


@pytest.mark.parametrize("queries", [GROUPED_QUERY_LIMIT, GROUPED_QUERY_LIMIT + 1, 3 * GROUPED_QUERY_LIMIT + 5])
def test_blocks_whole_and_cut_equal_eager(queries: int) -> None:
    check(arena_attention, contiguous_rows(30, queries, CPU), 30 + queries, 4, 2)
    every_third = scattered_rows(np.arange(0, 3 * queries, 3), CPU)
    check(arena_attention, every_third, 3 * queries, 4, 2)


@each_path
@pytest.mark.parametrize("positions", [[0, 1, 2], [4, 5, 6], [2, 9, 30]])
def test_later_slots_are_never_seen(path: object, positions: list[int]) -> None:
    rows = scattered_rows(np.array(positions), CPU)
    query, key, value = tensors(4, 2, len(positions), 40)
    before = run(path, query, key, value, rows, 0.25)
    for number, position in enumerate(positions):
        other_key, other_value = key.clone(), value.clone()
        other_key[:, :, position + 1 :] = 50
        other_value[:, :, position + 1 :] = -50
        after = run(path, query, other_key, other_value, rows, 0.25)
        torch.testing.assert_close(after[:, :, : number + 1], before[:, :, : number + 1])
        other_value[:, :, position] += 1
        assert not torch.allclose(run(path, query, key, other_value, rows, 0.25)[:, :, number], before[:, :, number])


@each_path
def test_the_scale_is_used_and_has_a_default(path: object) -> None:
    rows = contiguous_rows(10, 5, CPU)
    query, key, value = tensors(4, 2, 5, 15)
    check(path, rows, 15, 4, 2, scale=1.7)
    out, _ = arena_attention(nn.Module(), query, key, value, None, arena_rows=rows)
    torch.testing.assert_close(out.transpose(1, 2), run(path, query, key, value, rows, DIM**-0.5), atol=1e-5, rtol=1e-4)


@each_path
def test_bfloat16_stays_near_float32(path: object) -> None:
    rows = contiguous_rows(45, 5, CPU)
    query, key, value = (tensor.to(torch.bfloat16) for tensor in tensors(4, 2, 5, 50))
    found = run(path, query, key, value, rows, 0.25)
    assert found.dtype == torch.bfloat16
    expected = eager(query.float(), key.float(), value.float(), rows, 0.25)
    torch.testing.assert_close(found.float(), expected, atol=0.05, rtol=0.05)


def test_inputs_are_not_changed() -> None:
    query, key, value = tensors(4, 2, 5, 50)
    kept = [tensor.clone() for tensor in (query, key, value)]
    for path in (grouped_attention, masked_attention):
        run(path, query, key, value, contiguous_rows(45, 5, CPU), 0.25)
    assert all(torch.equal(one, other) for one, other in zip(kept, (query, key, value), strict=True))


def test_scattered_rows_know_a_run() -> None:
    assert scattered_rows(np.array([4, 5, 6]), CPU).first == 4
    assert scattered_rows(np.array([4, 6, 7]), CPU).first is None
    assert scattered_rows(np.array([9]), CPU).first == 9


def test_without_rows_it_says_how_to_run_the_model() -> None:
    query, key, value = tensors(4, 2, 5, 50)
    with pytest.raises(TypeError, match=r"models\.forward"):
        arena_attention(nn.Module(), query, key, value, None)
