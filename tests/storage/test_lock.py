"""One process writes to a data folder."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from storage.errors import HomeBusy
from storage.home import Home
from storage.lock import HomeLock

ROOT = Path(__file__).resolve().parents[2]
HOLD = (
    "import sys, time; from pathlib import Path; from storage.home import Home; from storage.lock import HomeLock;"
    "HomeLock(Home(Path(sys.argv[1]))).acquire(); print('held', flush=True); time.sleep(60)"
)


def test_a_second_process_is_refused_until_the_first_ends_however_it_ends(tmp_path: Path) -> None:
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)],
        stdout=subprocess.PIPE,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(HomeBusy, match=f"process {holder.pid}: stop it"):
            HomeLock(Home(tmp_path)).acquire()
    finally:
        holder.send_signal(signal.SIGKILL)
        holder.communicate()
    with HomeLock(Home(tmp_path)):
        assert Home(tmp_path).lock_file.read_text() == f"{os.getpid()}\n"


def test_a_lock_is_taken_and_given_back(tmp_path: Path) -> None:
    home = Home(tmp_path / "new")
    first, second = HomeLock(home), HomeLock(home)
    first.acquire()
    first.acquire()
    with pytest.raises(HomeBusy, match=f"process {os.getpid()}"):
        second.acquire()
    first.release()
    first.release()
    second.acquire()
    second.release()
    assert home.lock_file.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("content", [b"", b"not a number", b"\xff\xfe", b"1" * 100])
def test_a_strange_lock_file_is_still_a_lock(tmp_path: Path, content: bytes) -> None:
    home = Home(tmp_path)
    with HomeLock(home):
        home.lock_file.write_bytes(content)
        with pytest.raises(HomeBusy, match="in use by") as caught:
            HomeLock(home).acquire()
    assert "\n" not in str(caught.value)


def test_a_link_in_its_place_is_not_followed(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_text("mine")
    home = Home(tmp_path / "home")
    home.create()
    home.lock_file.symlink_to(outside)
    with pytest.raises(OSError, match="symbolic"):
        HomeLock(home).acquire()
    assert outside.read_text() == "mine"
