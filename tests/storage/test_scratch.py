"""The folder of a bench goes with its process, however that ends, and never while it works."""

import os
import signal
import subprocess
import sys
from pathlib import Path

from storage.home import Home
from storage.scratch import remove_abandoned, scratch_folder

ROOT = Path(__file__).resolve().parents[2]
KILLED = """
import os, signal, sys
from pathlib import Path
from storage.home import Home
from storage.scratch import scratch_folder
with scratch_folder(Home(Path(sys.argv[1]))) as folder:
    (folder / "copied.txt").write_text("a secret")
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_killed_process_leaves_a_folder_and_the_next_start_removes_it(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path)], cwd=ROOT, env=environment, check=False)
    assert done.returncode == -signal.SIGKILL
    assert len(list(tmp_path.glob("bench-*/copied.txt"))) == 1
    assert remove_abandoned(Home(tmp_path)) == 1
    assert list(tmp_path.glob("bench-*")) == []


def test_a_folder_in_use_and_other_folders_stay(tmp_path: Path) -> None:
    home = Home(tmp_path)
    with scratch_folder(home) as folder:
        (tmp_path / "bench-notes").mkdir()
        (tmp_path / "bench-1-0123456789abcdef").symlink_to(tmp_path / "bench-notes")
        assert folder.stat().st_mode & 0o777 == 0o700
        assert remove_abandoned(home) == 0
        assert folder.is_dir()
    assert not folder.exists()
    assert (tmp_path / "bench-notes").is_dir()


def test_a_kill_before_the_lock(tmp_path: Path) -> None:
    home = Home(tmp_path)
    ours, gone = tmp_path / f"bench-{os.getpid()}-{'0' * 16}", tmp_path / f"bench-{2**30}-{'0' * 16}"
    ours.mkdir()
    gone.mkdir()
    assert remove_abandoned(home) == 1
    assert ours.is_dir()
    assert not gone.exists()
