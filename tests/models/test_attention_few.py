"""The walk for few lanes against the walk for many and against SDPA, and which of the two decoding takes."""

from collections.abc import Iterator

import numpy as np
import pytest
import torch
from torch import nn

from models.attention import BatchRows, QueryRows, arena_attention, compiled_why_not
from models.forward import scattered_rows
from tests.models.attending import Inputs, exact, inputs, random_rows

pytestmark = pytest.mark.skipif(compiled_why_not() is not None, reason=str(compiled_why_not()))
BF16 = torch.bfloat16


@pytest.fixture(params=[1, 2, 5])
def threads(request: pytest.FixtureRequest) -> Iterator[int]:
    kept = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(kept)


def check(tensors: Inputs, rows: QueryRows, scale: float) -> torch.Tensor:
    """Each walk is off by two roundings to bfloat16 at most, of each weight and of the sum; what few lanes gave."""
    from models.attention.compiled import few_attention, few_serves, wide_attention

    query, key, value = tensors
    assert few_serves(query, key)
    expected = exact(query, key, value, rows, scale)
    allowed = exact(query, key, value.abs(), rows, scale) * 2**-7 * 1.01 + 1e-6
    found, wide = (walk(query, key, value, rows, scale) for walk in (few_attention, wide_attention))
    for walk in (found, wide):
        assert walk.dtype == BF16
        assert walk.shape == query.shape
        apart = (walk.float() - expected).abs()
        assert bool((apart <= allowed).all()), f"{float((apart / allowed).max())} times what is allowed"
    # Both round the same weights, summed in another order: nearly all numbers agree to the last bit.
    assert float((found == wide).float().mean()) > 0.8
    return found


@pytest.mark.parametrize("head_dim", [32, 64, 96, 128, 256])
@pytest.mark.parametrize("group", [*range(1, 9), 12])
def test_groups_rows_and_dimensions(group: int, head_dim: int) -> None:
    from models.attention.few_lanes import FEW_LANES

    for queries in range(1, min(4, FEW_LANES // group) + 1):
        for slots, tail in ((queries, 0), (333, 0), (300, 1)):
            tensors = inputs(2 * group, 2, queries, slots, head_dim, BF16)
            check(tensors, random_rows(queries, slots, tail), head_dim**-0.5)


@pytest.mark.parametrize("slots", [1, 2, 15, 16, 17, 63, 64, 65, 127, 128, 129, 1000, 4096])
def test_lengths(slots: int, threads: int) -> None:
    """Tiles whole and cut, on one thread and split over several; rows that see few slots of many."""
    check(inputs(9, 3, 1, slots, 64, BF16), scattered_rows(np.array([slots - 1]), torch.device("cpu")), 0.125)
    queries = min(slots, 2)
    first_and_last = np.array([0, slots - 1])[-queries:]
    check(inputs(9, 3, queries, slots, 64, BF16), scattered_rows(first_and_last, torch.device("cpu")), 0.3)
    check(inputs(2, 2, min(slots, 4), slots, 64, BF16), random_rows(min(slots, 4), slots), 0.125)


def test_later_slots_change_nothing() -> None:
    from models.attention.compiled import few_attention

    query, key, value = inputs(2, 2, 4, 300, 64, BF16)
    rows = random_rows(4, 300)
    before = few_attention(query, key, value, rows, 0.125)
    for row in range(4):
        position = int(rows.positions[row])
        other_key, other_value = key.clone(), value.clone()
        other_key[:, :, position + 1 :] = 50
        other_value[:, :, position + 1 :] = -50
        after = few_attention(query, other_key, other_value, rows, 0.125)
        assert torch.equal(after[:, :, : row + 1], before[:, :, : row + 1])
        other_value[:, :, position] += 9
        after = few_attention(query, other_key, other_value, rows, 0.125)
        assert not torch.equal(after[:, :, row], before[:, :, row])


@pytest.mark.parametrize("size", [1e-3, 30.0])
def test_flat_and_sharp_scores(size: float, threads: int) -> None:
    """Weights all alike, and one that outweighs all; maxima that rise from tile to tile."""
    query, key, value = inputs(8, 2, 2, 700, 64, BF16)
    key = key * torch.linspace(0.1, 1, 700)[:, None].to(BF16)
    check((query * size, key, value), random_rows(2, 700, 1), 0.125)


def test_decoding_takes_it_and_long_questions_do_not() -> None:
    from models.attention.compiled import compiled_attention, few_attention, few_serves, wide_attention

    for queries, head_dim, few in ((1, 64, True), (2, 64, True), (40, 64, False), (1, 80, False)):
        query, key, value = inputs(9, 3, queries, 400, head_dim, BF16)
        rows = random_rows(queries, 400, 1)
        assert few_serves(query, key) is few
        walk = few_attention if few else wide_attention
        found = compiled_attention(query, key, value, rows, 0.125)
        assert torch.equal(found, walk(query, key, value, rows, 0.125))


def test_parts_of_a_batch(threads: int) -> None:
    """Answers decoded together: one row each, over arenas of their own."""
    from models.attention.compiled import few_attention

    parts = [inputs(9, 3, 1, slots, 64, BF16) for slots in (5, 130, 700, 64)]
    rows = tuple(random_rows(1, part[1].shape[2]) for part in parts)
    query = torch.cat([part[0] for part in parts], dim=2)
    keys, values = [part[1] for part in parts], [part[2] for part in parts]
    found, _ = arena_attention(nn.Module(), query, keys, values, None, scaling=0.125, arena_rows=BatchRows(rows))
    for number, (part, at) in enumerate(zip(parts, rows, strict=True)):
        alone = few_attention(*part, at, 0.125)
        assert torch.equal(found[:, number : number + 1], alone.transpose(1, 2))
        check(part, at, 0.125)
