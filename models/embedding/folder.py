"""What a model folder says about itself, read and judged before any weight is loaded."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from models.errors import ModelMissing, ModelRefused

# Encoders that read a text in both directions and give `last_hidden_state`: what pooling is defined over.
ENCODER_KINDS = frozenset(
    {"albert", "bert", "camembert", "distilbert", "electra", "modernbert", "mpnet", "roberta", "xlm-roberta"}
)
_STEPS = ("Transformer", "Pooling", "Normalize")


@dataclass(frozen=True)
class EncoderFolder:
    """A folder that can be loaded. `pooling`: "mean" or "cls"; `limit_pieces`: the longest input it was made for."""

    path: Path
    kind: str
    pooling: str
    limit_pieces: int


def read_encoder_folder(folder: Path) -> EncoderFolder:
    """Judge a folder by its small files.

    Raises ModelMissing (no folder, no config, no weights) and ModelRefused (another architecture, another pooling).
    """
    if not (folder / "config.json").is_file():
        raise ModelMissing(f"no embedding model in {folder}: run installer/run.sh, or name its folder with --embedding")
    if not any(folder.glob("*.safetensors")):
        raise ModelMissing(f"{folder} holds no *.safetensors weights: name the folder of a complete embedding model")
    _optional(folder / "tokenizer.json")  # its own reader raises nothing that could be told from a fault of ours
    config = _read_object(folder / "config.json")
    kind = str(config.get("model_type"))
    if kind not in ENCODER_KINDS:
        known = ", ".join(sorted(ENCODER_KINDS))
        raise ModelRefused(f"{folder} is a {kind} model, not a text encoder: use one of the kinds {known}")
    limits = [
        limit
        for limit in (
            config.get("max_position_embeddings"),
            _optional(folder / "sentence_bert_config.json").get("max_seq_length"),
        )
        if isinstance(limit, int) and limit > 0
    ]
    return EncoderFolder(folder, kind, _pooling(folder), min(limits, default=256))


def _pooling(folder: Path) -> str:
    """The pooling that a sentence-transformers folder names; "mean" where it names none."""
    modules = folder / "modules.json"
    if modules.is_file():
        for step in _read(modules, list):
            name = str(step.get("type", "")).rsplit(".", 1)[-1] if isinstance(step, dict) else ""
            if name not in _STEPS:
                raise ModelRefused(
                    f"{modules} asks for the step {name or step!r}: use a model with mean or cls pooling"
                )
    settings = _optional(folder / "1_Pooling" / "config.json")
    modes = {name.removeprefix("pooling_mode_") for name, on in settings.items() if "mode_" in name and on is True}
    if not modes or modes == {"mean_tokens"}:
        return "mean"
    if modes == {"cls_token"}:
        return "cls"
    raise ModelRefused(f"{folder} pools by {', '.join(sorted(modes))}: use a model with mean or cls pooling")


def _optional(path: Path) -> dict[str, Any]:
    return _read_object(path) if path.is_file() else {}


def _read_object(path: Path) -> dict[str, Any]:
    content: dict[str, Any] = _read(path, dict)
    return content


def _read(path: Path, expected: type) -> Any:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ModelRefused(f"{path} cannot be read ({error}): download the model again") from error
    if not isinstance(content, expected):
        raise ModelRefused(f"{path} is not a JSON {expected.__name__}: download the model again")
    return content
