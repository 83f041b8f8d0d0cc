"""The lock files belong to pyproject.toml, are hashed throughout and name no package source."""

import re
import tomllib

import pytest

from tests.installer.scripts import ROOT, load_script

lock = load_script("lock")
LOCKS = ("requirements.lock", "requirements-test.lock", "requirements-cuda.lock")


def blocks(name: str) -> dict[str, str]:
    text = (ROOT / name).read_text(encoding="utf-8")
    found: dict[str, str] = lock.blocks_by_name(text)
    return found


def test_blocks_keep_hashes_and_drop_package_sources() -> None:
    first, second = "A.b==1 \\\n    --hash=sha256:1\n    # via x\n", "c==2 \\\n    --hash=h\n"
    text = f"--index-url somewhere\n# top\n{first}--find-links somewhere\n{second}"
    assert lock.blocks_by_name(text) == {"a.b": first, "c": second}


@pytest.mark.parametrize("name", LOCKS)
def test_every_package_is_pinned_with_hashes(name: str) -> None:
    assert blocks(name)
    for package, block in blocks(name).items():
        assert re.search(r"--hash=sha256:[0-9a-f]{64}", block), package
    assert not re.search(r"(?m)^-|://", (ROOT / name).read_text(encoding="utf-8"))


def test_locks_are_those_of_pyproject() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    runtime, test = blocks("requirements.lock"), blocks("requirements-test.lock")
    for requirement in project["dependencies"]:
        name, _, version = requirement.partition("==")
        if name != "torch":
            assert runtime[name].startswith(f"{name}=={version} "), f"{requirement}: run installer/lock.py"
    for requirement in project["optional-dependencies"]["test"]:
        name, _, version = requirement.partition("==")
        assert test[name].startswith(f"{name}=={version} "), f"{requirement}: run installer/lock.py"


def test_a_cpu_machine_gets_no_cuda_packages_and_torch_is_left_to_set_up() -> None:
    names = {*blocks("requirements.lock"), *blocks("requirements-test.lock")}
    assert not [name for name in names if name.startswith(("nvidia", "cuda", "torch"))]
    assert "setuptools" in names
