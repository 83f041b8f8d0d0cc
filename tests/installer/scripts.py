"""Loads the installer's Python scripts for testing: they are run by path, and no package may import them."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parents[2]


def load_script(name: str) -> ModuleType:
    """The module of `installer/NAME.py`, under a name that cannot be taken for one of our packages."""
    spec = importlib.util.spec_from_file_location(f"installer_script_{name}", ROOT / "installer" / f"{name}.py")
    if spec is None or spec.loader is None:
        raise FileNotFoundError(name)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up here
    spec.loader.exec_module(module)
    return module
