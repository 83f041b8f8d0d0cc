"""The compiled loops against SDPA: positions, shapes, threads, and what they must never read."""

import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import nn

from models import attention
from models.attention import (
    QueryRows,
    arena_attention,
    choose_attention,
    compiled_why_not,
    registered,
)
from models.errors import DeviceUnavailable
from models.forward import contiguous_rows
from tests.models.attending import GROUPS, Inputs, exact, inputs, random_rows

CPU = torch.device("cpu")
BF16 = torch.bfloat16
needs_loops = pytest.mark.skipif(compiled_why_not() is not None, reason=str(compiled_why_not()))


@pytest.fixture(params=[1, 2, 5])
def threads(request: pytest.FixtureRequest) -> Iterator[int]:
    kept = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(kept)


def attend(tensors: Inputs, rows: QueryRows, scale: float) -> torch.Tensor:
    from models.attention.compiled import compiled_attention, serves

    assert serves(*tensors[:2])
    return compiled_attention(*tensors, rows, scale)


def check(tensors: Inputs, rows: QueryRows, scale: float) -> None:
    """Off by two roundings to bfloat16 at most: of each weight, and of the sum."""
    expected, found = exact(*tensors, rows, scale), attend(tensors, rows, scale)
    assert found.dtype == BF16
    assert found.shape == tensors[0].shape
    query, key, value = tensors
    allowed = exact(query, key, value.abs(), rows, scale) * 2**-7 * 1.01 + 1e-6
    apart = (found.float() - expected).abs()
    assert bool((apart <= allowed).all()), f"{float((apart / allowed).max())} times what is allowed"


@needs_loops
@pytest.mark.parametrize("head_dim", [16, 64, 80, 96, 128, 256])
@pytest.mark.parametrize(("heads", "kv_heads"), GROUPS)
def test_random_positions(heads: int, kv_heads: int, head_dim: int) -> None:
    for queries, slots, tail in ((1, 1, 0), (1, 333, 0), (30, 333, 10), (107, 350, 30)):
        tensors = inputs(heads, kv_heads, queries, slots, head_dim, BF16)
        check(tensors, random_rows(queries, slots, tail), head_dim**-0.5)


@needs_loops
@pytest.mark.parametrize("slots", [1, 2, 31, 32, 33, 63, 64, 65, 1000, 4096])
def test_lengths(slots: int, threads: int) -> None:
    """Tiles whole and cut, on one thread and split over several."""
    for queries in sorted({1, min(slots, 5), min(slots, 40)}):
        check(inputs(9, 3, queries, slots, 64, BF16), contiguous_rows(slots - queries, queries, CPU), 0.125)
    check(inputs(9, 3, 1, slots, 64, BF16), random_rows(1, slots), 0.3)


@needs_loops
def test_many_rows_on_all_threads(threads: int) -> None:
    check(inputs(9, 3, 450, 2000, 64, BF16), random_rows(450, 2000, 30), 0.125)


@needs_loops
def test_later_slots_change_nothing() -> None:
    query, key, value = inputs(9, 3, 40, 300, 64, BF16)
    rows = random_rows(40, 300)
    before = attend((query, key, value), rows, 0.125)
    for row in (0, 7, 39):
        position = int(rows.positions[row])
        other_key, other_value = key.clone(), value.clone()
        other_key[:, :, position + 1 :] = 50
        other_value[:, :, position + 1 :] = -50
        after = attend((query, other_key, other_value), rows, 0.125)
        assert torch.equal(after[:, :, : row + 1], before[:, :, : row + 1])
        other_value[:, :, position] += 9
        after = attend((query, other_key, other_value), rows, 0.125)
        assert not torch.equal(after[:, :, row], before[:, :, row])


@needs_loops
@pytest.mark.parametrize("size", [1e-3, 30.0])
def test_flat_and_sharp_scores(size: float) -> None:
    """Weights all alike, and one that outweighs all; maxima that rise from tile to tile."""
    query, key, value = inputs(8, 2, 20, 700, 64, BF16)
    key = key * torch.linspace(0.1, 1, 700)[:, None].to(BF16)
    check((query * size, key, value), random_rows(20, 700), 0.125)


@needs_loops
def test_questions_at_once_do_not_mix() -> None:
    tensors = [inputs(9, 3, 30, 400 + number, 64, BF16) for number in range(4)]
    rows = [contiguous_rows(370 + number, 30, CPU) for number in range(4)]
    expected = [attend(each, at, 0.125) for each, at in zip(tensors, rows, strict=True)]
    barrier = threading.Barrier(4)

    def work(number: int) -> None:
        barrier.wait()
        for _ in range(20):
            found = attend(tensors[number], rows[number], 0.125)
            torch.testing.assert_close(found, expected[number], atol=1e-2, rtol=1e-2)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))


@needs_loops
def test_the_arena_takes_them_for_bfloat16() -> None:
    tensors = inputs(9, 3, 30, 300, 64, BF16)
    rows = random_rows(30, 300)
    found, _ = arena_attention(nn.Module(), *tensors, None, scaling=0.125, arena_rows=rows)
    assert torch.equal(found.transpose(1, 2), attend(tensors, rows, 0.125))
    odd = inputs(4, 2, 30, 300, 24, BF16)  # a head_dim that the loops do not know goes another way
    found, _ = arena_attention(nn.Module(), *odd, None, scaling=0.2, arena_rows=rows)
    torch.testing.assert_close(found.transpose(1, 2).float(), exact(*odd, rows, 0.2), atol=0.05, rtol=0.05)


def test_choices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registered, "compiled_why_not", lambda: None)
    assert choose_attention("auto", CPU).name == "compiled"
    assert choose_attention("auto", CPU, torch.float32).name == "grouped"
    monkeypatch.setattr(registered, "compiled_why_not", lambda: "the processor has no avx512bf16")
    assert choose_attention("auto", CPU, BF16).name == "grouped"
    assert "avx512bf16" in choose_attention("auto", CPU, BF16).reason
    with pytest.raises(DeviceUnavailable, match="avx512bf16"):
        choose_attention("compiled", CPU, BF16)
    assert {choose_attention(name, CPU).name for name in ("grouped", "plain")} == {"grouped", "plain"}
    with pytest.raises(DeviceUnavailable, match="choose one of auto"):
        choose_attention("quick", CPU)
    if os.environ.get("TRITON_INTERPRET") != "1":
        with pytest.raises(DeviceUnavailable, match="triton"):
            choose_attention("triton", CPU)
    assert set(attention.ATTENTIONS) >= {"auto", "plain"}


def test_a_processor_without_the_instructions_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = pytest.importorskip("models.attention.compiled")
    monkeypatch.setattr(compiled, "_FEATURES", ("+avx512f", "+of_tomorrow"))
    compiled.why_not.cache_clear()
    try:
        assert "of_tomorrow" in compiled.why_not() or "avx512f" in compiled.why_not()
    finally:
        compiled.why_not.cache_clear()
