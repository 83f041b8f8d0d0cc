"""Files and functions stay short enough to be read at one sitting."""

import ast
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("appliance", "installer", "models", "storage", "tests", "ui")
FILE_LINES = 300
FUNCTION_LINES = 60


def too_long(root: Path) -> list[str]:
    """One line per file or function under `root` that is over its limit."""
    found = []
    for path in sorted(path for folder in FOLDERS for path in (root / folder).rglob("*")):
        if path.suffix not in {".py", ".sh", ".css", ".js"}:
            continue
        text, name = path.read_text(encoding="utf-8"), path.relative_to(root)
        lines = len(text.splitlines())
        if lines > FILE_LINES:
            found.append(f"{name}: {lines} lines, at most {FILE_LINES}")
        if path.suffix != ".py":
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = (node.end_lineno or node.lineno) - node.lineno + 1
                if lines > FUNCTION_LINES:
                    found.append(f"{name}:{node.lineno} {node.name}: {lines} lines, at most {FUNCTION_LINES}")
    return found


def test_sizes() -> None:
    assert too_long(ROOT) == []


def test_the_check_finds_what_is_too_long(tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    (tmp_path / "models/good.py").write_text("def f() -> None:\n" + "    x = 1\n" * 59 + "\n" * 240)
    assert too_long(tmp_path) == []
    (tmp_path / "models/file.py").write_text("x = 1\n" * 301)
    (tmp_path / "models/function.py").write_text("class C:\n    async def f(self) -> None:\n" + "        x = 1\n" * 60)
    assert too_long(tmp_path) == [
        "models/file.py: 301 lines, at most 300",
        "models/function.py:2 f: 61 lines, at most 60",
    ]
