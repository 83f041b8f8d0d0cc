"""From what the user wrote (`--model DIR|HUB-NAME|random:SHAPE`) to a folder."""

import re
from pathlib import Path

from models.errors import ModelMissing, ModelRefused

RANDOM_PREFIX = "random:"
"""Before the name of a shape whose weights are random (models/loading/random_shapes.py): for timing alone."""
_HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+")
_WANTED = ("*.json", "*.safetensors", "*.jinja", "*.model", "vocab.txt", "merges.txt")


def looks_like_hub_name(text: str) -> bool:
    """Whether `text` is `owner/name`, and neither it nor a folder `owner` is here (then a folder was meant)."""
    return bool(_HUB_NAME.fullmatch(text)) and not Path(text.split("/")[0]).exists()


def has_random_weights(text: str) -> bool:
    """Whether `text` is `random:SHAPE`, which no folder is behind."""
    return text.startswith(RANDOM_PREFIX)


def settled_name(text: str) -> str:
    """A folder as its absolute path: what was meant must not change with the working folder. Other names stay."""
    named = looks_like_hub_name(text) or has_random_weights(text)
    return text if named else str(Path(text).expanduser().absolute())


def resolve_model(text: str) -> Path:
    """The model's folder. Only a hub name, which the user asked for, is looked up outside.

    Raises ModelMissing; and ModelRefused for random weights, which benches open by `load_random_model`.
    """
    if has_random_weights(text):
        raise ModelRefused(f"{text} has random weights, for timing alone: only benches open it; name a model folder")
    if looks_like_hub_name(text):
        return _from_hub(text)
    folder = Path(text).expanduser()
    if not folder.is_dir():
        raise ModelMissing(f"{text}: no such model folder: run installer/run.sh once, or name one with --model")
    if not (folder / "config.json").is_file() or not any(folder.glob("*.safetensors")):
        raise ModelMissing(f"{text}: holds no config.json with *.safetensors: name a transformers model folder")
    return folder


def _from_hub(name: str) -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError, OfflineModeIsEnabled

    try:
        return Path(snapshot_download(name, allow_patterns=list(_WANTED)))
    except (HfHubHTTPError, LocalEntryNotFoundError, OfflineModeIsEnabled, OSError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ModelMissing(f"{name}: cannot be had from the hub ({reason}): name a local folder instead") from error
