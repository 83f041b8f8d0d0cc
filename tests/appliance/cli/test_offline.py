"""Nothing is looked up at run time unless the user typed a hub name (DESIGN.md §8.5)."""

import subprocess
import sys
from pathlib import Path

import pytest

_TELL = """
import atexit, sys
def tell():
    constants = sys.modules.get("huggingface_hub.constants")
    print("LOADED" if constants else "NOT LOADED", getattr(constants, "HF_HUB_OFFLINE", None), file=sys.stderr)
atexit.register(tell)
from appliance.cli import main
main()
"""


@pytest.mark.parametrize(("model", "offline"), [("{missing}", True), ("nobody-at-all/no-such-model", False)])
def test_the_libraries_are_offline_unless_a_hub_name_was_typed(tmp_path: Path, model: str, offline: bool) -> None:
    named = model.format(missing=tmp_path / "nothing")
    (tmp_path / "note.txt").write_text("The pump was serviced in May.")
    command = [sys.executable, "-c", _TELL, "ingest", str(tmp_path / "note.txt"), "--home", str(tmp_path / "home")]
    found = subprocess.run([*command, "--model", named], capture_output=True, text=True, timeout=120)
    assert found.returncode == 1
    assert f"LOADED {offline}" in found.stderr
    assert "error: " in found.stderr
