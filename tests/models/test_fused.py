"""The fused layers against transformers' own, every architecture and rotary kind, float32 and bfloat16."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from models.arena import Arena
from models.attention import BatchRows
from models.batching import BatchCache
from models.capture import capture_kv
from models.forward import FUSED_ROWS, contiguous_rows, embed_rows, run_cache, run_layers, run_rows, scattered_rows
from models.fused import FusedLayers, can_fuse, find_head_row
from models.loading import LanguageModel, load_language_model
from models.packing import PackedLinear, choose_linears, join_linears
from tests.models.conftest import load
from tests.models.tiny import save_tiny_model

TOKENS = 300
CPU = torch.device("cpu")
packs = choose_linears("auto", CPU, torch.bfloat16, "bf16").name == "packed"
needs_packing = pytest.mark.skipif(not packs, reason="this processor or torch cannot pack bfloat16 weights")
ROWS = {
    "one": np.array([TOKENS - 1]),
    "scattered": np.array([0, 3, 4, 40, 41, 177, TOKENS - 1]),
    "many": np.arange(TOKENS - FUSED_ROWS, TOKENS),
}


def fused(model: LanguageModel) -> LanguageModel:
    """With joint plain projections: what is compared is the steps between."""
    join_linears(model.layers, lambda linear: linear)
    assert can_fuse(model.backbone)
    return replace(model, fused=FusedLayers(model.backbone))


def filled(model: LanguageModel) -> tuple[Arena, np.ndarray]:
    arena = Arena(model.geometry, model.dtype, model.device, model.window)
    arena.reserve(TOKENS)
    ids = np.random.default_rng(5).integers(0, 250, TOKENS)
    run_rows(replace(model, fused=None), arena, ids, contiguous_rows(0, TOKENS, CPU), TOKENS)
    return arena, ids[::-1].copy()


@pytest.mark.parametrize("kind", ROWS)
def test_equals_transformers_own_layers(tiny_folder: Path, kind: str) -> None:
    plain, model = load(tiny_folder), fused(load(tiny_folder))
    assert plain.fused is None
    rows = scattered_rows(ROWS[kind], CPU)
    (arena, ids), (other, _) = filled(model), filled(plain)
    found = run_rows(model, arena, ids[: len(rows.positions)], rows, TOKENS)
    expected = run_rows(plain, other, ids[: len(rows.positions)], rows, TOKENS)
    torch.testing.assert_close(found, expected, rtol=0, atol=2e-5)
    torch.testing.assert_close(arena.keys, other.keys, rtol=0, atol=2e-5)
    torch.testing.assert_close(arena.values, other.values, rtol=0, atol=2e-5)


@needs_packing
@pytest.mark.parametrize("architecture", ["llama", "qwen2", "qwen3"])
def test_in_bfloat16_the_same_numbers_but_for_the_last_bit(tmp_path: Path, architecture: str) -> None:
    """One layer, so that a difference is not multiplied: every step rounds where its twin does."""
    folder = save_tiny_model(tmp_path / "model", architecture)
    config = folder / "config.json"
    config.write_text(config.read_text().replace("float32", "bfloat16"))
    model = load_language_model(folder, CPU)
    assert model.fused is not None
    plain = replace(model, fused=None)
    rows = scattered_rows(ROWS["scattered"], CPU)
    (arena, ids), (other, _) = filled(model), filled(plain)
    hidden = embed_rows(model, ids[:7])
    found = run_layers(model, arena, hidden, rows, TOKENS, range(1)).float()
    expected = run_layers(plain, other, hidden, rows, TOKENS, range(1)).float()
    torch.testing.assert_close(found, expected, rtol=2**-7, atol=2**-7)
    assert (found == expected).float().mean() > 0.9
    assert (arena.keys == other.keys).float().mean() > 0.999


def test_several_questions_at_once_equal_one_after_another(tiny_folder: Path) -> None:
    model = fused(load(tiny_folder))
    arenas, ids = zip(*(filled(model) for _ in range(2)), strict=True)
    where = BatchRows((contiguous_rows(TOKENS - 1, 1, CPU), contiguous_rows(100, 1, CPU)))
    cache = BatchCache(arenas, where, [TOKENS, 101])
    hidden = embed_rows(model, ids[0][:2])
    found = run_cache(model, cache, hidden, where, TOKENS, range(model.geometry.layers))
    keys = [arena.keys.clone() for arena in arenas]
    for index, end in enumerate((TOKENS, 101)):
        row = contiguous_rows(end - 1, 1, CPU)
        expected = run_layers(model, arenas[index], hidden[index : index + 1], row, end, range(model.geometry.layers))
        torch.testing.assert_close(found[index : index + 1], expected, rtol=0, atol=1e-5)
        torch.testing.assert_close(keys[index], arenas[index].keys, rtol=0, atol=1e-5)


def test_who_listens_to_a_projection_hears_it(llama_folder: Path) -> None:
    plain, model = load(llama_folder), fused(load(llama_folder))
    rows = contiguous_rows(TOKENS - 5, 5, CPU)
    heard = []
    for each in (plain, model):
        arena, ids = filled(each)
        with capture_kv(each.layers) as captured:
            run_rows(each, arena, ids[:5], rows, TOKENS)
        heard.append(captured.stacked(each.geometry))
    for found, expected in zip(*heard, strict=True):
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)


def test_a_row_outside_the_arena_is_refused(llama_folder: Path) -> None:
    model = fused(load(llama_folder))
    arena, ids = filled(model)
    before = arena.keys.clone()
    for first, end in ((arena.capacity, arena.capacity + 1), (TOKENS, TOKENS), (-1, TOKENS)):
        with pytest.raises(ValueError, match="slots"):
            run_layers(model, arena, embed_rows(model, ids[:1]), contiguous_rows(first, 1, CPU), end, range(1))
    assert torch.equal(arena.keys, before)


def test_part_of_a_joint_product_is_never_that_of_other_rows() -> None:
    torch.manual_seed(1)
    owner = nn.Module()
    owner.self_attn, owner.mlp = nn.Module(), nn.Module()
    linears = {name: nn.Linear(8, 4 + index) for index, name in enumerate(("q_proj", "k_proj", "v_proj", "o_proj"))}
    for name, linear in linears.items():
        setattr(owner.self_attn, name, linear)
    for name in ("gate_proj", "up_proj", "down_proj"):
        setattr(owner.mlp, name, nn.Linear(8, 8))
    join_linears(nn.ModuleList([owner]), lambda linear: linear)
    one, other = torch.randn(3, 8), torch.randn(3, 8)
    for rows, name in ((one, "q_proj"), (other, "k_proj"), (one, "v_proj"), (one, "q_proj"), (one, "k_proj")):
        torch.testing.assert_close(getattr(owner.self_attn, name)(rows), linears[name](rows))


@needs_packing
def test_joint_and_packed_gives_the_bits_of_each_alone() -> None:
    torch.manual_seed(2)
    linears = [nn.Linear(64, out, dtype=torch.bfloat16).requires_grad_(False) for out in (64, 32, 32)]
    from models.packing import JointLinear

    joint = JointLinear(linears, PackedLinear)
    for count in (1, 25, 300):
        rows = torch.randn(count, 64, dtype=torch.bfloat16)
        for index, linear in enumerate(linears):
            torch.testing.assert_close(joint.part(rows, index), PackedLinear(linear)(rows), rtol=2**-7, atol=2**-7)


@needs_packing
@pytest.mark.parametrize(("inputs", "words"), [(64, 320), (96, 513), (576, 1200)])
def test_the_head_of_one_row_is_the_plain_layers(inputs: int, words: int) -> None:
    torch.manual_seed(3)
    layer = nn.Linear(inputs, words, bias=False, dtype=torch.bfloat16).requires_grad_(False)
    head = find_head_row(layer)
    assert head is not None
    row = torch.randn(inputs, dtype=torch.bfloat16)
    expected = layer(row).float()
    found = head(row)
    assert (found.dtype, found.shape) == (torch.float32, expected.shape)
    torch.testing.assert_close(found, expected, rtol=2**-7, atol=1e-6)
    assert (found == expected).float().mean() > 0.95
    assert torch.equal(found, found.bfloat16().float()), "rounded as the layer's own are"
    layer.weight[1] = float("nan")
    assert head(row)[1].isnan()
    assert not head(row)[[0, 2]].isnan().any()


def test_other_heads_keep_their_own_product() -> None:
    assert find_head_row(nn.Linear(64, 32, bias=False)) is None
    assert find_head_row(nn.Linear(64, 32, dtype=torch.bfloat16)) is None
    assert find_head_row(nn.Identity()) is None
