"""From what the user wrote (`--model DIR|HUB-NAME`) to a folder."""

import re
from pathlib import Path

from models.errors import ModelMissing

_HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+")
_WANTED = ("*.json", "*.safetensors", "*.jinja", "*.model", "vocab.txt", "merges.txt")


def looks_like_hub_name(text: str) -> bool:
    """Whether `text` is `owner/name`, and neither it nor a folder `owner` is here (then a folder was meant)."""
    return bool(_HUB_NAME.fullmatch(text)) and not Path(text.split("/")[0]).exists()


def settled_name(text: str) -> str:
    """A hub name as it is, a folder as its absolute path: what was meant must not change with the working folder."""
    return text if looks_like_hub_name(text) else str(Path(text).expanduser().absolute())


def resolve_model(text: str) -> Path:
    """The model's folder. Only a hub name, which the user asked for, is looked up outside. Raises ModelMissing."""
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
