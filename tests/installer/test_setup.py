"""setup.sh, run.sh and test.sh against a stand-in for Python and pip: what they call, when, and what they say."""

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.installer.scripts import ROOT

# Acts as python3, as the environment's python, and through them as venv, pip, ruff, mypy and pytest; notes every call.
FAKE_PYTHON = r"""#!/usr/bin/env bash
echo "$*" >>"$FAKE_LOG"
case "$*" in
    "-c import sys;"*) exit "${FAKE_OLD:-0}" ;;
    "-c import venv"*) exit "${FAKE_NO_VENV:-0}" ;;
    "-m venv "*) mkdir -p "$3/bin" && touch "$3/pyvenv.cfg" && cp "$0" "$3/bin/python" ;;
    *"pip download"*) [[ -z ${FAKE_PIP_ERROR:-} ]] || { echo "$FAKE_PIP_ERROR"; exit 1; } ;;
    *check_torch.py*) echo "${FAKE_KIND:-cpu} 00ff /nowhere/torch.whl" ;;
    *"-r requirements.lock")
        sleep "${FAKE_SLEEP:-0}"
        [[ -z ${FAKE_KILL:-} ]] || { kill -9 "$PPID"; exit 1; } ;;
    *--editable*)
        printf '#!/usr/bin/env bash\necho "ran" "$@"\nexit "${FAKE_EXIT:-0}"\n' >"${0%/*}/appliance"
        chmod +x "${0%/*}/appliance" ;;
    *"models.py check "*) [[ -f $4/all-minilm-l6-v2/manifest.json ]] || exit 3 ;;
    *"models.py build "*)
        mkdir -p "$4/all-minilm-l6-v2" "$4/smollm2-135m-instruct"
        touch "$4/all-minilm-l6-v2/manifest.json" "$4/smollm2-135m-instruct/manifest.json" ;;
    "-m ruff check ."*) exit "${FAKE_RUFF:-0}" ;;
    "-m pytest"*) echo "1 passed"; exit "${FAKE_PYTEST:-0}" ;;
esac
"""
FAKE_DF = r"""#!/usr/bin/env bash
printf 'heading\ndisk 1 1 %s 1 /\n' "${FAKE_FREE_KB:-99999999}"
"""


@dataclass(frozen=True)
class Checkout:
    """A checkout with a space in its path, and a PATH on which our python3 and df are found first."""

    root: Path
    log: Path
    programs: Path

    def start(self, script: str, *arguments: str, **variables: str) -> subprocess.Popen[str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("APPLIANCE_", "PIP_"))}
        environment = kept | {"PATH": f"{self.programs}:{os.environ['PATH']}", "FAKE_LOG": str(self.log)} | variables
        command = ["bash", str(self.root / "installer" / script), *arguments]
        pipe = subprocess.PIPE
        return subprocess.Popen(command, cwd="/", env=environment, stdout=pipe, stderr=pipe, text=True)

    def run(self, script: str, *arguments: str, **variables: str) -> tuple[int, str, str]:
        process = self.start(script, *arguments, **variables)
        out, err = process.communicate(timeout=60)
        return process.returncode, out, err

    def calls(self, word: str = "") -> list[str]:
        lines = self.log.read_text(encoding="utf-8").splitlines() if self.log.exists() else []
        return [line for line in lines if word in line]


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    root, programs = tmp_path / "a checkout", tmp_path / "programs"
    shutil.copytree(ROOT / "installer", root / "installer", ignore=shutil.ignore_patterns("__pycache__"))
    for path in (ROOT / "pyproject.toml", *ROOT.glob("requirements*.lock")):
        shutil.copy(path, root)
    programs.mkdir()
    for name, text in (("python3", FAKE_PYTHON), ("df", FAKE_DF)):
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    return Checkout(root, tmp_path / "calls", programs)


def test_sets_up_once_then_starts_at_once(checkout: Checkout) -> None:
    status, out, err = checkout.run("run.sh", "ask", "two words", FAKE_EXIT="7")
    assert (status, out) == (7, "ran ask two words\n")
    assert "setup: ready" in err
    checkout.log.unlink()
    assert checkout.run("run.sh") == (0, "ran demo\n", "")
    assert checkout.calls() == []


def test_a_changed_lock_or_a_lost_model_sets_up_again(checkout: Checkout) -> None:
    checkout.run("run.sh")
    with (checkout.root / "requirements.lock").open("a") as file:
        file.write("# changed\n")
    checkout.log.unlink()
    checkout.run("run.sh")
    assert len(checkout.calls("-r requirements.lock")) == 1
    assert checkout.calls("pip download") == []  # torch and the models are still good
    shutil.rmtree(checkout.root / ".venv/share/appliance/models/all-minilm-l6-v2")
    checkout.run("run.sh")
    assert len(checkout.calls("models.py build")) == 1


def test_hashes_are_required_and_tests_and_cuda_come_only_when_needed(checkout: Checkout) -> None:
    checkout.run("run.sh")
    [packages] = checkout.calls("-r requirements")
    assert {"--require-hashes", "--no-deps", "--only-binary=:all:"} <= set(packages.split())
    checkout.run("test.sh")
    assert len(checkout.calls("-r requirements-test.lock")) == 1
    assert checkout.calls("-r requirements-cuda.lock") == []


def test_a_cuda_build_brings_its_packages(checkout: Checkout) -> None:
    checkout.run("run.sh", FAKE_KIND="cuda")
    [cuda] = checkout.calls("-r requirements-cuda.lock")
    assert "--require-hashes" in cuda


def test_a_killed_set_up_is_completed_by_the_next(checkout: Checkout) -> None:
    assert checkout.run("run.sh", FAKE_KILL="1")[0] != 0
    checkout.log.unlink()
    assert checkout.run("run.sh")[:2] == (0, "ran demo\n")
    assert ["-r requirements.lock" in call for call in checkout.calls("--ignore-installed")] == [True]
    assert checkout.calls("pip download --no-deps --only-binary=:all: --dest") != []
    assert not [call for call in checkout.calls("pip download") if "torch==" in call]  # that step was done


def test_two_at_once_wait_for_each_other(checkout: Checkout) -> None:
    both = [checkout.start("run.sh", FAKE_SLEEP="0.7") for _ in range(2)]
    ended = [process.communicate(timeout=60) for process in both]
    assert [out for out, _ in ended] == ["ran demo\n"] * 2
    assert sum("waiting for another set-up" in err for _, err in ended) == 1
    assert len(checkout.calls("-r requirements.lock")) == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "WARNING: Retrying: NewConnectionError: Failed to establish a new connection",
            "no network while getting torch",
        ),
        ("ERROR: Could not install: [Errno 28] No space left on device", "disk full while getting torch"),
        (
            "ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM\n    torch==9 from x:",
            "digest mismatch while getting torch",
        ),
        ("ERROR: No matching distribution found for torch==9", "package source does not offer torch"),
        ("ERROR: something new", "pip could not get torch"),
    ],
)
def test_pip_errors_become_one_line(checkout: Checkout, text: str, message: str) -> None:
    status, out, err = checkout.run("run.sh", FAKE_PIP_ERROR=text)
    assert (status, out) == (1, "")
    assert message in err.splitlines()[-1]
    assert err.count("setup: ") == 3  # making, getting, the error


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({"FAKE_NO_VENV": "1"}, "python3 has no venv module"),
        ({"APPLIANCE_PYTHON": "/nowhere/python"}, "no Python 3.11 to 3.14 found at /nowhere/python"),
        ({"APPLIANCE_VENV": "/usr"}, "/usr is not a virtual environment"),
    ],
)
def test_an_unfit_machine_is_refused_in_one_line(checkout: Checkout, variables: dict[str, str], message: str) -> None:
    status, out, err = checkout.run("run.sh", **variables)
    assert (status, out, len(err.splitlines())) == (1, "", 1)
    assert message in err


def test_a_small_disk_is_refused_before_anything_is_made(checkout: Checkout) -> None:
    status, _, err = checkout.run("run.sh", FAKE_FREE_KB="2048000")
    assert status == 1
    assert "disk too small: the environment needs 4 GB" in err
    assert checkout.calls("-m venv") == []


@pytest.mark.parametrize(("ruff", "pytest_status", "status"), [("0", "0", 0), ("1", "0", 1), ("0", "5", 5)])
def test_every_check_runs_and_any_failure_counts(
    checkout: Checkout, ruff: str, pytest_status: str, status: int
) -> None:
    found, out, _ = checkout.run("test.sh", "-k", "this", FAKE_RUFF=ruff, FAKE_PYTEST=pytest_status)
    assert found == status
    assert out.splitlines()[-1] == "1 passed"
    assert checkout.calls("-m pytest") == ["-m pytest -k this"]
    assert len(checkout.calls("-m mypy")) == 2
