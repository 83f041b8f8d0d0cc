"""Loading: what cannot be served is refused by name in one line, and nothing in a folder is ever run."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from models.errors import DeviceUnavailable, ModelError, ModelMissing, ModelRefused
from models.loading import LanguageModel, choose_device, load_language_model, resolve_model
from tests.models.tiny import WINDOW, save_tiny_model

CPU = torch.device("cpu")
ROTARY = {"rope_theta": 10000.0}


@pytest.fixture
def folder(llama_folder: Path, tmp_path: Path) -> Path:
    """A copy to spoil."""
    return Path(shutil.copytree(llama_folder, tmp_path / "my-model"))


def change(folder: Path, **fields: Any) -> Path:
    """Other values in config.json; None removes a field."""
    config = json.loads((folder / "config.json").read_text()) | fields
    config = {name: value for name, value in config.items() if value is not None}
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def load(folder: Path, **options: Any) -> LanguageModel:
    return load_language_model(folder, CPU, **options)


def refused(folder: Path, words: str, error: type[ModelError] = ModelRefused, **options: Any) -> None:
    with pytest.raises(error, match=words) as caught:
        load(folder, **options)
    line = str(caught.value)
    assert "my-model" in line or "weights" in line
    assert "\n" not in line
    assert len(line) < 400


def test_a_model_is_what_its_config_says(folder: Path) -> None:
    model = load(folder)
    assert model.name == "my-model"
    assert (model.geometry.layers, model.geometry.kv_heads, model.geometry.head_dim) == (3, 2, 16)
    assert model.window == WINDOW
    assert model.dtype == torch.float32
    assert model.stop_ids == {model.tokenizer.eos_token_id}
    assert model.weights_bytes == sum(t.nbytes for t in load_file(folder / "model.safetensors").values())
    assert not any(parameter.requires_grad for parameter in model.backbone.parameters())
    assert not model.backbone.training


@pytest.mark.parametrize("kind", ["gpt2", "bloom", "mpt", "gpt_neox", "phi3", "gemma2"])
def test_other_architectures_are_refused_by_name(folder: Path, kind: str) -> None:
    (folder / "config.json").write_text(json.dumps({"model_type": kind}))
    refused(folder, f"'{kind}' is not supported")


@pytest.mark.parametrize(
    ("rotary", "words"),
    [
        ({"rope_type": "dynamic", "factor": 2.0}, "'dynamic'"),
        (
            {
                "rope_type": "longrope",
                "factor": 2.0,
                "short_factor": [1.0] * 8,
                "long_factor": [2.0] * 8,
                "original_max_position_embeddings": 64,
            },
            "'longrope'",
        ),
        ({"rope_type": "proportional"}, "'proportional'"),
        ({"rope_type": "default", "partial_rotary_factor": 0.5}, "partial rotary"),
        ({"full_attention": {"rope_type": "default"}, "sliding_attention": {"rope_type": "linear"}}, "rotary"),
    ],
)
def test_rotary_kinds_that_cannot_be_moved_are_refused_by_name(
    folder: Path, rotary: dict[str, Any], words: str
) -> None:
    per_layer = "full_attention" in rotary
    refused(change(folder, rope_parameters=rotary if per_layer else {**ROTARY, **rotary}), words)


def test_older_names_of_the_same_are_refused_too(folder: Path) -> None:
    refused(change(folder, rope_parameters=None, rope_scaling={"type": "dynamic", "factor": 2.0}), "'dynamic'")
    refused(change(folder, rope_scaling=None, rope_parameters=None, partial_rotary_factor=0.25), "partial rotary")


@pytest.mark.parametrize(
    ("architecture", "fields", "window"),
    [
        ("llama", {"max_position_embeddings": 512}, 512),
        ("mistral", {"sliding_window": 256}, 256),
        ("mistral", {"sliding_window": 100_000}, WINDOW),
        ("qwen2", {"sliding_window": 256, "use_sliding_window": True}, 256),
        ("qwen2", {"sliding_window": 256, "use_sliding_window": False}, WINDOW),
        ("qwen3", {"sliding_window": 256, "use_sliding_window": False}, WINDOW),
    ],
)
def test_the_window(tmp_path: Path, architecture: str, fields: dict[str, Any], window: int) -> None:
    folder = save_tiny_model(tmp_path / "my-model", architecture)
    assert load(change(folder, **fields)).window == window


@pytest.mark.parametrize(
    ("name", "content", "words", "error"),
    [
        ("config.json", None, "config.json", ModelMissing),
        ("config.json", "{", "config.json cannot be read", ModelRefused),
        ("config.json", "[]", "config.json cannot be read", ModelRefused),
        ("config.json", "{}", "config.json cannot be read", ModelRefused),
        ("config.json", '{"model_type": "unheard-of"}', "config.json cannot be read", ModelRefused),
        ("tokenizer.json", None, "no tokenizer.json", ModelRefused),
        ("tokenizer.json", "torn", "tokenizer cannot be read", ModelRefused),
        ("tokenizer.json", "{}", "tokenizer cannot be read", ModelRefused),
        ("model.safetensors", None, "weights cannot be loaded", ModelMissing),
        ("model.safetensors", "", "weights cannot be loaded", ModelMissing),
        ("model.safetensors", "x" * 100, "weights cannot be loaded", ModelMissing),
    ],
)
def test_a_broken_folder_is_one_clear_line(
    folder: Path, name: str, content: str | None, words: str, error: type[ModelError]
) -> None:
    (folder / name).unlink()
    if content is not None:
        (folder / name).write_text(content)
    refused(folder, words, error)


def test_weights_that_are_cut_short_or_lack_a_tensor_are_refused(folder: Path) -> None:
    weights = folder / "model.safetensors"
    whole = weights.read_bytes()
    for length in (4, 1000, len(whole) // 2, len(whole) - 1):
        weights.write_bytes(whole[:length])
        refused(folder, "weights cannot be loaded", ModelMissing)
    weights.write_bytes(whole)
    tensors = load_file(weights)
    tensors.pop("model.layers.1.self_attn.k_proj.weight")
    save_file(tensors, weights, metadata={"format": "pt"})
    refused(folder, r"lacks 1 weights \(model.layers.1.self_attn.k_proj.weight", ModelMissing)


def test_a_missing_folder_is_told_with_its_mend(tmp_path: Path) -> None:
    with pytest.raises(ModelMissing, match=r"no such model folder.*--model"):
        resolve_model(str(tmp_path / "nothing"))
    with pytest.raises(ModelMissing, match=r"no config\.json with \*\.safetensors"):
        resolve_model(str(tmp_path))
    with pytest.raises(ModelMissing, match="no model folder"):
        load(tmp_path / "nothing")


def test_a_folder_is_taken_before_a_hub_name(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder.parent.parent)
    assert resolve_model(f"{folder.parent.name}/my-model") == Path(folder.parent.name) / "my-model"
    assert resolve_model(str(folder)) == folder


class Canary:
    """A pickle that, where it is loaded, leaves a file behind."""

    def __init__(self, nest: Path) -> None:
        self.nest = nest

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        return Path.touch, (self.nest,)


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.bin", "model.safetensors"])
def test_pickles_are_never_run(folder: Path, tmp_path: Path, name: str) -> None:
    nest = tmp_path / "flown"
    (folder / "model.safetensors").unlink()
    torch.save({"x": Canary(nest)}, folder / name)
    refused(folder, "weights cannot be loaded", ModelMissing)
    assert not nest.exists()
    (folder / name).rename(folder / "canary")
    torch.load(folder / "canary", weights_only=False)
    assert nest.exists(), "the canary itself cannot fly"


def test_code_in_a_folder_is_never_run(folder: Path, tmp_path: Path) -> None:
    nest = tmp_path / "flown"
    (folder / "code.py").write_text(f"open({str(nest)!r}, 'w')\nclass C: pass\n")
    mapping = {"AutoConfig": "code.C", "AutoModelForCausalLM": "code.C", "AutoTokenizer": ["code.C", "code.C"]}
    tokenizer = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps({**tokenizer, "auto_map": mapping}))
    load(change(folder, auto_map=mapping))
    assert not nest.exists()
    refused(change(folder, model_type="own-kind", auto_map=mapping), "config.json cannot be read")
    assert not nest.exists()


@pytest.mark.parametrize("weights", ["int8", "int4"])
def test_quantised_weights_need_bfloat16_on_a_cpu(folder: Path, weights: str) -> None:
    refused(folder, f"{weights} weights on a CPU need a model in bfloat16", DeviceUnavailable, weights=weights)


def test_unknown_weights_and_devices(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    refused(folder, "bf16, int8, int4", weights="int3")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(DeviceUnavailable, match="--device cpu"):
        choose_device("cuda")
    for asked in ("auto", "cpu"):
        device, reason = choose_device(asked)
        assert device.type == "cpu"
        assert reason
