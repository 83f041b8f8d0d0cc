"""Compiled loops name what they call: numba's cache looks at the text of the file that holds a loop alone."""

import hashlib
import re
from pathlib import Path

import pytest

MODELS = Path(__file__).resolve().parents[2] / "models"
CALLS = {
    "attention/job.py": ("llvm.py",),
    "attention/few_lanes.py": ("job.py", "llvm.py", "vectors.py", "few_vectors.py"),
    "attention/loops.py": ("job.py", "llvm.py", "vectors.py", "few_vectors.py", "few_lanes.py"),
    "placing/loops.py": ("recipes.py", "unpacking.py"),
    "placing/vector_loops.py": ("recipes.py", "unpacking.py", "vectors.py"),
    "fused/loops.py": (),
    "fused/head.py": ("loops.py", "../attention/llvm.py", "../attention/vectors.py"),
}


def digest(folder: Path, names: tuple[str, ...]) -> str:
    return hashlib.sha256(b"".join((folder / name).read_bytes() for name in names)).hexdigest()[:12]


@pytest.mark.parametrize("name", CALLS)
def test_loops_name_what_they_call(name: str) -> None:
    """From the top: a line mended in one file changes the digest that the next one needs."""
    if CALLS[name]:
        line = f"# Calls: {digest((MODELS / name).parent, CALLS[name])}"
        assert line in (MODELS / name).read_text().splitlines(), f"in models/{name} write: {line}"


def test_a_change_is_seen(tmp_path: Path) -> None:
    (tmp_path / "llvm.py").write_text("LANES = 16\n")
    before = digest(tmp_path, ("llvm.py",))
    (tmp_path / "llvm.py").write_text("LANES = 32\n")
    assert digest(tmp_path, ("llvm.py",)) != before


def test_every_import_is_named() -> None:
    """What is imported from beside a loop's file, and every file that numba caches."""
    for name, called in CALLS.items():
        beside = name.partition("/")[0]
        lines = [line.split() for line in (MODELS / name).read_text().splitlines() if line.startswith("from models.")]
        whole = f"models.{beside}"
        imported = {words[1] if words[1] != whole else f"{whole}.{words[3]}" for words in lines}
        assert {f"{one.rsplit('.')[-1]}.py" for one in imported if one.startswith(whole)} <= set(called), name
    texts = {str(file.relative_to(MODELS)): file.read_text() for file in MODELS.rglob("*.py")}
    caching = {name for name, text in texts.items() if "numba" in text and re.search(r'cache"?(=|: )True', text)}
    assert caching <= {*CALLS, "placing/unpacking.py"}, "unpacking.py has the options, and calls nothing"
