"""Weight-only int8 and int4 on a CPU against a plain layer of the same numbers, and as `--weights`."""

from pathlib import Path

import pytest
import torch
from torch import nn

from models.errors import DeviceUnavailable, ModelRefused
from models.loading import load_language_model
from models.packing import choose_linears
from models.quantised import FEW_ROWS, GROUP_INPUTS, QUANTISED, plain_twin
from tests.models.conftest import run, sample_prompt
from tests.models.tiny import save_tiny_model

CPU = torch.device("cpu")
packs = choose_linears("auto", CPU, torch.bfloat16, "bf16").name == "packed"
pytestmark = pytest.mark.skipif(not packs, reason="this processor or torch cannot pack bfloat16 weights")
LARGEST_ERROR = {"int8": 0.012, "int4": 0.1}


def drawn(bias: bool = False) -> nn.Linear:
    torch.manual_seed(3)
    return nn.Linear(128, 96, bias=bias, dtype=torch.bfloat16).requires_grad_(False)


def relative(found: torch.Tensor, expected: torch.Tensor) -> float:
    return float((found.float() - expected.float()).norm() / expected.float().norm())


@pytest.mark.parametrize("weights", QUANTISED)
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("many", [False, True])
@pytest.mark.parametrize("rows", [1, 2, 5, 40])
def test_equals_a_plain_layer_of_its_numbers(weights: str, bias: bool, many: bool, rows: int) -> None:
    linear = drawn(bias)
    sample = torch.randn(1, rows, 128, dtype=torch.bfloat16)
    found = QUANTISED[weights](linear, many)(sample)
    assert found.shape == (1, rows, 96)
    assert relative(found, plain_twin(linear, weights)(sample)) < 0.006  # bfloat16's own rounding, twice
    assert 1e-3 < relative(found, linear(sample)) < LARGEST_ERROR[weights]


def test_what_was_quantised_in_groups_of_a_channel_is_found_again() -> None:
    """Weights out of a GGUF's Q4_1 lose almost nothing by int4 (they do by int8)."""
    torch.manual_seed(4)
    codes = torch.randint(0, 16, (96, 128 // GROUP_INPUTS, GROUP_INPUTS)).float()
    codes[..., 0], codes[..., 1] = 0, 15  # as Q4_1 takes its scale from the least and the largest
    scales, least = torch.rand(96, 4, 1) * 0.02 + 0.01, torch.randn(96, 4, 1) * 0.1
    linear = drawn()
    linear.weight.copy_((codes * scales + least).view(96, 128))
    assert relative(plain_twin(linear, "int4").weight, linear.weight) < 0.006


def test_nothing_is_lost_where_a_channel_is_zero() -> None:
    linear = drawn()
    linear.weight[3] = 0
    for weights, kind in QUANTISED.items():
        for rows in (1, 1 + max(FEW_ROWS.values())):
            found = kind(linear)(torch.ones(rows, 128, dtype=torch.bfloat16))
            assert found.isfinite().all()
            assert (found[:, 3] == 0).all(), weights


def test_shapes_without_whole_groups_are_refused() -> None:
    with pytest.raises(ModelRefused, match="use --weights int8"):
        QUANTISED["int4"](nn.Linear(100, 96, bias=False, dtype=torch.bfloat16))


@pytest.mark.parametrize("weights", QUANTISED)
def test_a_quantised_model_answers_as_its_plain_twin(tmp_path: Path, weights: str) -> None:
    folder = save_tiny_model(tmp_path / "model", "qwen2")
    with pytest.raises(DeviceUnavailable, match="bfloat16"):
        load_language_model(folder, CPU, weights)
    config = folder / "config.json"
    config.write_text(config.read_text().replace("float32", "bfloat16"))
    model, twin = load_language_model(folder, CPU, weights), load_language_model(folder, CPU, weights, linears="plain")
    unquantised = load_language_model(folder, CPU)
    assert model.fused is not None
    assert twin.fused is None
    assert model.identity == twin.identity != unquantised.identity
    prompt = sample_prompt(twin, 3)
    for strategy in ("full", "reuse"):
        found, expected = run(model, prompt, strategy).logits, run(twin, prompt, strategy).logits
        assert relative(found, expected) < 0.05
        assert relative(found, run(unquantised, prompt, strategy).logits) > 0.003, "nothing was quantised"
