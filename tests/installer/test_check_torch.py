"""Which builds of torch set-up takes, and which it refuses."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.installer.scripts import ROOT, load_script

check_torch = load_script("check_torch")


def make_wheel(folder: Path, version: str, *required: str) -> Path:
    path = folder / f"torch-{version}-cp311-cp311-linux_x86_64.whl"
    lines = ["Metadata-Version: 2.1", "Name: torch", f"Version: {version}", *(f"Requires-Dist: {r}" for r in required)]
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(f"torch-{version}.dist-info/METADATA", "\n".join(lines) + "\n\nText\n")
    return path


@pytest.mark.parametrize(
    ("required", "kind"),
    [
        (("sympy", "nvidia-cudnn-cu13==9; platform_system == 'Linux'"), "cuda"),
        (("cuda-toolkit[cublas]==13",), "cuda"),
        (("sympy", 'nvidia-extra; extra == "gpu"'), "cpu"),
    ],
)
def test_kind_is_read_from_the_requirements(tmp_path: Path, required: tuple[str, ...], kind: str) -> None:
    assert check_torch.version_and_kind(make_wheel(tmp_path, "2.13.0", *required)) == ("2.13.0", kind)


def test_a_known_digest_passes_without_a_word(tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path, "2.13.0", "nvidia-nccl-cu13")
    digest = check_torch.digest_of(wheel)
    assert check_torch.check(wheel, "2.13.0", {digest}) == ("cuda", digest, "")


def test_an_unknown_cpu_build_of_the_version_passes_with_one_line(tmp_path: Path) -> None:
    kind, digest, warning = check_torch.check(make_wheel(tmp_path, "2.13.0+cpu", "sympy"), "2.13.0", set())
    assert kind == "cpu"
    assert digest in warning
    assert "\n" not in warning


@pytest.mark.parametrize(
    ("version", "required", "word"),
    [
        ("2.12.0+cpu", "sympy", "is torch 2.12.0"),
        ("2.13.0", "sympy", "digest mismatch"),
        ("2.13.0+cu130", "nvidia-nccl-cu13", "digest mismatch"),
    ],
)
def test_any_other_unknown_build_is_refused(tmp_path: Path, version: str, required: str, word: str) -> None:
    wheel = make_wheel(tmp_path, version, required)
    with pytest.raises(check_torch.WrongWheel, match=word):
        check_torch.check(wheel, "2.13.0", set())


def test_the_script_prints_one_line_and_refuses_with_one(tmp_path: Path) -> None:
    command = [sys.executable, "-I", str(ROOT / "installer/check_torch.py"), str(tmp_path), "2.13.0"]
    nothing = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (nothing.returncode, nothing.stdout, len(nothing.stderr.splitlines())) == (1, "", 1)
    wheel = make_wheel(tmp_path, "2.13.0+cpu")
    found = subprocess.run(command, capture_output=True, text=True, check=True)
    assert found.stdout.split() == ["cpu", check_torch.digest_of(wheel), str(wheel)]


def test_the_known_builds_cover_every_supported_python() -> None:
    text = (ROOT / "installer/torch.sha256").read_text(encoding="utf-8")
    assert all(f"torch-2.13.0-cp{minor}-cp{minor}-manylinux_2_28_x86_64" in text for minor in (311, 312, 313, 314))
    assert all(len(digest) == 64 for digest in check_torch.known_digests())
