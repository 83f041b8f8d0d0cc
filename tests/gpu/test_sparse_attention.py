"""The compiled Triton kernels of attention against SDPA on the same device, and how much sooner they are done."""

from collections.abc import Callable

import pytest
import torch
from torch import nn

from models.attention import QueryRows, choose_attention, masked_attention, triton_arena_attention, whole_attention
from tests.gpu.marks import NEEDS_CUDA
from tests.models.attending import GROUPS, exact, inputs, random_rows

pytestmark = NEEDS_CUDA
CUDA = torch.device("cuda")


def attend(tensors: tuple[torch.Tensor, torch.Tensor, torch.Tensor], rows: QueryRows, scale: float) -> torch.Tensor:
    from models.attention.triton_attention import serves, triton_attention

    assert serves(*tensors[:2])
    return triton_attention(*tensors, rows, scale)


def test_auto_takes_it() -> None:
    choice = choose_attention("auto", CUDA)
    assert choice.name == "triton", choice.reason


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("head_dim", [64, 80, 96, 128, 256])
@pytest.mark.parametrize(("heads", "kv_heads"), GROUPS)
def test_random_positions(heads: int, kv_heads: int, head_dim: int, dtype: torch.dtype) -> None:
    for queries, slots, tail in ((1, 1, 0), (1, 4096, 0), (30, 2000, 30), (300, 2000, 30), (614, 4096, 40)):
        tensors = inputs(heads, kv_heads, queries, slots, head_dim, dtype, "cuda")
        rows = random_rows(queries, slots, tail, "cuda")
        expected = exact(*tensors, rows, head_dim**-0.5)
        off = {torch.float32: 1e-4, torch.bfloat16: 3e-2, torch.float16: 4e-3}[dtype]
        torch.testing.assert_close(attend(tensors, rows, head_dim**-0.5).float(), expected, atol=off, rtol=0)


def test_the_arena_takes_it() -> None:
    tensors = inputs(8, 2, 9, 60, 64, torch.bfloat16, "cuda")
    rows = random_rows(9, 60, device="cuda")
    found, _ = triton_arena_attention(nn.Module(), *tensors, None, scaling=0.125, arena_rows=rows)
    assert torch.equal(found.transpose(1, 2), attend(tensors, rows, 0.125))


def best_ms(work: list[Callable[[], object]], rounds: int = 10) -> list[float]:
    """The shortest of `rounds` of each, taken in turn."""
    best = [float("inf")] * len(work)
    for _ in range(rounds):
        for number, each in enumerate(work):
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
            begin.record()
            each()
            end.record()
            end.synchronize()
            best[number] = min(best[number], begin.elapsed_time(end))
    return best


def test_a_sparse_pass_is_sooner_done_than_all(capsys: pytest.CaptureFixture[str]) -> None:
    """15% of 32k tokens, a 7B model's heads: at least 4.2 times a full causal pass, 2.7 times masked SDPA."""
    slots = 32768
    full = [torch.randn(1, heads, slots, 128, device="cuda", dtype=torch.bfloat16) for heads in (32, 8, 8)]
    rows = random_rows(int(0.15 * slots), slots, 30, "cuda")
    query = full[0][:, :, rows.positions].contiguous()
    sparse, whole, masked = best_ms(
        [
            lambda: attend((query, full[1], full[2]), rows, 128**-0.5),
            lambda: whole_attention(full[0], full[1], full[2], rows, 128**-0.5),
            lambda: masked_attention(query, full[1], full[2], rows, 128**-0.5),
        ]
    )
    with capsys.disabled():
        print(f"\nsparse {sparse:.3f} ms, full {whole / sparse:.2f} times, masked SDPA {masked / sparse:.2f} times")
    assert whole / sparse >= 4.2
    assert masked / sparse >= 2.7
