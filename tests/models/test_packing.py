"""Packed linear layers against their plain twin."""

from pathlib import Path

import pytest
import torch
from torch import nn

from models.embedding import EmbeddingModel
from models.errors import DeviceUnavailable
from models.loading import load_language_model
from models.packing import PackedLinear, choose_linears, pack_linears
from tests.models.conftest import run, sample_prompt
from tests.models.tiny import save_tiny_model
from tests.models.tiny_encoder import save_tiny_encoder

CPU = torch.device("cpu")
packs = choose_linears("auto", CPU, torch.bfloat16, "bf16").name == "packed"
needs_packing = pytest.mark.skipif(not packs, reason="this processor or torch cannot pack bfloat16 weights")


@needs_packing
@pytest.mark.parametrize("rows", [1, 2, 7, 25, 64, 301])
@pytest.mark.parametrize("bias", [False, True])
def test_packed_equals_plain(rows: int, bias: bool) -> None:
    torch.manual_seed(rows)
    linear = nn.Linear(96, 160, bias=bias, dtype=torch.bfloat16).requires_grad_(False)
    sample = torch.randn(1, rows, 96, dtype=torch.bfloat16)
    found, expected = PackedLinear(linear)(sample), linear(sample)
    # One unit in the last place of bfloat16: kernels may add in another order.
    torch.testing.assert_close(found, expected, rtol=2**-7, atol=2**-7)


@needs_packing
def test_a_packed_model_answers_as_the_plain_one(tmp_path: Path) -> None:
    folder = save_tiny_model(tmp_path / "model", "qwen2")
    config = folder / "config.json"
    config.write_text(config.read_text().replace("float32", "bfloat16"))
    packed = load_language_model(folder, CPU, linears="packed")
    plain = load_language_model(folder, CPU, linears="plain")
    assert packed.linears.name == "packed"
    assert packed.identity == plain.identity
    assert packed.weights_bytes == plain.weights_bytes
    prompt = sample_prompt(plain, 3)
    for strategy in ("full", "reuse"):
        found, expected = run(packed, prompt, strategy).logits, run(plain, prompt, strategy).logits
        torch.testing.assert_close(found, expected, rtol=0.05, atol=0.05)


@needs_packing
def test_every_linear_below_is_replaced_and_its_weights_freed() -> None:
    layers = nn.ModuleList([nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 8))]).to(torch.bfloat16)
    assert pack_linears(layers) == 2
    assert not any(isinstance(module, nn.Linear) for module in layers.modules())
    assert sum(parameter.numel() for parameter in layers.parameters()) == 0


@needs_packing
def test_a_packed_question_is_nearly_the_same_vector(tmp_path: Path) -> None:
    embedding = EmbeddingModel.load(save_tiny_encoder(tmp_path / "encoder", ["valve", "rust", "monday"], 64))
    questions = ["Who replaced the valve?", "a", "Rust ate the valve; Ines replaced it on Monday. " * 3]
    plain = [embedding.embed_question(question) for question in questions]
    windows = [found.copy() for found in embedding.embed_windows(questions)]
    embedding.pack_questions()
    for question, expected in zip(questions, plain, strict=True):
        found = embedding.embed_question(question)
        assert found.dtype == expected.dtype
        assert float(found @ expected) > 0.999
        assert not (found == expected).all(), "nothing was packed"
    for found, expected in zip(embedding.embed_windows(questions), windows, strict=True):
        assert (found == expected).all(), "what is stored must not depend on packing"


def test_only_bfloat16_on_a_cpu_is_packed() -> None:
    assert choose_linears("auto", CPU, torch.float32, "bf16").name == "plain"
    assert choose_linears("auto", torch.device("cuda"), torch.bfloat16, "bf16").name == "plain"
    assert choose_linears("plain", CPU, torch.bfloat16, "bf16").reason == "asked for"
    with pytest.raises(DeviceUnavailable, match="--linears plain"):
        choose_linears("packed", CPU, torch.float32, "bf16")
    with pytest.raises(DeviceUnavailable, match="choose one of"):
        choose_linears("quick", CPU, torch.bfloat16, "bf16")
