"""The house keeps its floors (DESIGN.md §2): checked by reading the imports, not by running them."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
OURS = {"appliance", "installer", "models", "storage", "tests", "ui"}
# The first entry that a file lies under decides what of ours it may import.
MAY_IMPORT = {
    "appliance/cli": {"appliance", "models", "storage", "ui"},
    "appliance": {"appliance", "models", "storage"},
    "models": {"models", "storage"},
    "storage": {"storage"},
    "ui": {"ui", "appliance"},
}
# What a floor never does: storage knows no model, models no catalog, ui neither models nor files.
NEVER = {
    "models": {"gradio", "sqlite3", "sqlite_utils"},
    "storage": {"gradio", "transformers"},
    "ui": {"faiss", "safetensors", "sqlite3", "sqlite_utils", "torch", "transformers"},
}
UNSAFE_MODULES = {"_pickle", "cloudpickle", "dill", "joblib", "marshal", "pickle", "shelve"}
UNSAFE_CALLS = {"__import__", "eval", "exec"}
UNSAFE_KEYWORDS = {"allow_pickle", "trust_remote_code"}
# `appliance status` must answer in under two seconds; any of these alone takes longer to import, or nearly.
STATUS_PATH = ("appliance.cli", "appliance.settings", "storage.catalog", "storage.home")
SLOW = {"faiss", "gradio", "numba", "torch", "transformers"}


def imported(node: ast.AST, package: str) -> Iterator[str]:
    """Absolute names of the modules that a statement (or a literal `import_module`) imports."""
    match node:
        case ast.Import():
            yield from (alias.name for alias in node.names)
        case ast.ImportFrom(level=0):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        case ast.ImportFrom():
            parents = package.split(".")[: len(package.split(".")) - node.level + 1]
            base = ".".join([*parents, *([node.module] if node.module else [])])
            yield from (f"{base}.{alias.name}" if base else alias.name for alias in node.names)
        case ast.Call(func=ast.Attribute(attr="import_module") | ast.Name(id="import_module"), args=[first, *_]):
            if isinstance(first, ast.Constant):  # a computed name cannot be read here
                yield str(first.value)


def unsafe(node: ast.AST) -> Iterator[str]:
    """What in a call would run code out of data."""
    if not isinstance(node, ast.Call):
        return
    match node.func:
        case ast.Name(id=name) if name in UNSAFE_CALLS:
            yield f"calls {name}"
        case ast.Attribute(value=ast.Name(id="torch"), attr="load"):
            yield "calls torch.load"
    for keyword in node.keywords:
        is_off = isinstance(keyword.value, ast.Constant) and keyword.value.value is False
        if keyword.arg in UNSAFE_KEYWORDS and not is_off:
            yield f"passes {keyword.arg}"


def complaints(root: Path) -> list[str]:
    """One line per broken rule in the packages under `root`."""
    found = []
    for path in sorted(path for floor in MAY_IMPORT if "/" not in floor for path in (root / floor).rglob("*.py")):
        name = path.relative_to(root).as_posix()
        allowed = next(may for under, may in MAY_IMPORT.items() if name.startswith(f"{under}/"))
        never = NEVER.get(name.split("/")[0], set()) | UNSAFE_MODULES
        package = ".".join(path.relative_to(root).parent.parts)
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            place = f"{name}:{getattr(node, 'lineno', 0)}"
            for module in imported(node, package):
                top = module.split(".")[0]
                if (top in OURS and top not in allowed) or top in never:
                    found.append(f"{place} imports {module}")
                elif f"{module}.".startswith("appliance.cli.") and not name.startswith("appliance/cli/"):
                    found.append(f"{place} imports {module}: nothing stands on the roof")
                elif module == "torch.load":
                    found.append(f"{place} imports torch.load")
            found.extend(f"{place} {what}" for what in unsafe(node))
    return found


def test_floors_of_the_house() -> None:
    assert complaints(ROOT) == []


@pytest.mark.parametrize(
    ("path", "text", "complaint"),
    [
        ("storage/a.py", "import models.rotary", "storage/a.py:1 imports models.rotary"),
        ("storage/a.py", "from transformers import AutoConfig", "storage/a.py:1 imports transformers.AutoConfig"),
        ("storage/deep/a.py", "from ... import ui", "storage/deep/a.py:1 imports ui"),
        ("models/a.py", "def f():\n    from appliance import settings", "models/a.py:2 imports appliance.settings"),
        ("models/a.py", "import sqlite_utils", "models/a.py:1 imports sqlite_utils"),
        ("ui/a.py", "from storage.home import Home", "ui/a.py:1 imports storage.home.Home"),
        ("ui/a.py", "import torch", "ui/a.py:1 imports torch"),
        ("appliance/a.py", "import ui", "appliance/a.py:1 imports ui"),
        ("appliance/a.py", "import importlib\nimportlib.import_module('ui.app')", "appliance/a.py:2 imports ui.app"),
        ("ui/a.py", "from appliance import cli", "ui/a.py:1 imports appliance.cli: nothing stands on the roof"),
        ("appliance/cli/a.py", "from tests import x", "appliance/cli/a.py:1 imports tests.x"),
        ("appliance/cli/a.py", "import installer", "appliance/cli/a.py:1 imports installer"),
        ("appliance/a.py", "import pickle", "appliance/a.py:1 imports pickle"),
        ("models/a.py", "import torch\ntorch.load('x')", "models/a.py:2 calls torch.load"),
        ("models/a.py", "from torch import load", "models/a.py:1 imports torch.load"),
        ("models/a.py", "f(trust_remote_code=True)", "models/a.py:1 passes trust_remote_code"),
        ("models/a.py", "np.load('x', allow_pickle=flag)", "models/a.py:1 passes allow_pickle"),
        ("ui/a.py", "eval('1')", "ui/a.py:1 calls eval"),
    ],
)
def test_a_broken_rule_is_found(tmp_path: Path, path: str, text: str, complaint: str) -> None:
    (tmp_path / path).parent.mkdir(parents=True)
    (tmp_path / path).write_text(text)
    assert complaints(tmp_path) == [complaint]


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("storage/deep/a.py", "from ..blocks import read\nfrom . import b\nimport storage.home, torch"),
        ("models/a.py", "from storage.codecs import base\nmodel.eval()\nf(trust_remote_code=False)"),
        ("appliance/cli/a.py", "import ui.app, storage.catalog, models.embedding\nfrom appliance import service"),
        ("ui/a.py", "from appliance.service import Appliance\nimport gradio"),
    ],
)
def test_what_is_allowed_passes(tmp_path: Path, path: str, text: str) -> None:
    (tmp_path / path).parent.mkdir(parents=True)
    (tmp_path / path).write_text(text)
    assert complaints(tmp_path) == []


def slow_modules_after(imports: tuple[str, ...]) -> list[str]:
    """Which of the slow modules a fresh Python holds after importing `imports`."""
    code = f"import sys, {', '.join(imports)}; print(*sorted({SLOW!r} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_status_imports_nothing_slow() -> None:
    assert slow_modules_after(STATUS_PATH) == []


def test_a_slow_import_is_found() -> None:
    assert slow_modules_after(("faiss",)) == ["faiss"]
