"""What Gradio reads from the environment, set before it is imported; switches that would open the page are refused."""

import os
import shutil
import sys
from pathlib import Path

from appliance.errors import ApplianceError

_REFUSED = {
    "GRADIO_SHARE": "publishes the page on the internet",
    "GRADIO_VIBE_MODE": "lets the page run code",
    "GRADIO_MCP_SERVER": "opens the page to other programs",
    "GRADIO_WATCH_DIRS": "reloads code from folders",
    "GRADIO_LOCAL_DEV_MODE": "accepts pages of other sites",
    "GRADIO_ROOT_PATH": "moves the page to another address",
}

# Read once, when huggingface_hub and gradio are first imported.
_REQUIRED = {
    "GRADIO_ANALYTICS_ENABLED": "False",
    "GRADIO_RUN_HISTORY": "False",
    "GRADIO_SSR_MODE": "False",
    "HF_HUB_DISABLE_TELEMETRY": "1",
}


class PageRefused(ApplianceError):
    """The environment asks for something that would open the page to others."""


def prepare_environment(cache: Path) -> None:
    """Switch Gradio's outbound features off and keep its temporary files in `cache` (inside the data folder).

    Whatever a previous run left in `cache` is deleted: it is a second copy of someone's documents. Empty folders stay
    (one may be the working directory). Safe to repeat before the page is served. Changes `os.environ`.
    Raises `PageRefused` where a switch that would open the page is set, OSError where `cache` cannot be made.
    """
    for name, effect in _REFUSED.items():
        if os.environ.get(name):
            raise PageRefused(f"{name} is set and {effect}: unset it and start again")
    os.environ.update(_REQUIRED)
    if "huggingface_hub" not in sys.modules:  # a hub model asked for by name is loaded before the page is built
        os.environ.setdefault("HF_HUB_OFFLINE", "1")
    if cache.is_symlink():
        raise PageRefused(f"{cache} is a link: remove it, the page keeps its files inside the data folder")
    cache.mkdir(mode=0o700, parents=True, exist_ok=True)
    cache.chmod(0o700)
    _empty(cache)
    os.environ["GRADIO_TEMP_DIR"] = str(cache.absolute())


def _empty(folder: Path) -> None:
    for entry in folder.iterdir():
        if entry.is_symlink() or not entry.is_dir():
            entry.unlink()
        elif any(entry.iterdir()):
            shutil.rmtree(entry)
