"""Write the three lock files from pyproject.toml. For maintainers: needs `uv` on PATH and the package index.

    python installer/lock.py [--upgrade]

One universal resolution (every supported Python, every platform) is split by purpose, so that a machine installs only
what it needs. `torch` itself is in none of them: set-up takes whatever build of it the machine's pip offers
(`installer/torch.sha256`).
"""

import argparse
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RUNTIME, TEST, CUDA = (
    ROOT / name for name in ("requirements.lock", "requirements-test.lock", "requirements-cuda.lock")
)
BUILD = "setuptools>=77\n"  # the project is installed without build isolation, so its builder is locked too
CUDA_PREFIXES = ("nvidia-", "cuda-", "triton")  # what the full build of torch needs and a CPU build does not
HEADER = "# Made by installer/lock.py from pyproject.toml ({purpose}). Change that, then run it again.\n"


def resolve(output: Path, arguments: Iterable[str]) -> str:
    """Run uv's universal resolution; pins already in `output` are kept where they still fit."""
    command = ["uv", "pip", "compile", "pyproject.toml", "-", "--universal", "--python-version", "3.11"]
    # One version of each package for every Python: what was tested on one is what runs on the others.
    command += ["--fork-strategy", "fewest", "--no-header", "--quiet", "--output-file", str(output), *arguments]
    subprocess.run(command, cwd=ROOT, input=BUILD, text=True, check=True, stdout=subprocess.DEVNULL)
    return output.read_text(encoding="utf-8")


def blocks_by_name(text: str) -> dict[str, str]:
    """Split a requirements file into one block of lines (pin, hashes, comments) per package."""
    blocks: dict[str, str] = {}
    name = ""
    for line in text.splitlines(keepends=True):
        if line.startswith(("--index-url", "--extra-index-url", "--find-links")):
            continue  # where packages come from is the machine's business
        if match := re.match(r"[A-Za-z0-9][A-Za-z0-9._-]*(?===)", line):
            name = match.group().lower()
        if name:
            blocks[name] = blocks.get(name, "") + line
    return blocks


def main() -> int:
    """Resolve, split, write; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--upgrade", action="store_true", help="forget the pins of packages named only indirectly")
    upgrade: bool = parser.parse_args().upgrade
    with tempfile.TemporaryDirectory() as folder:
        everything, runtime_only = Path(folder, "everything.txt"), Path(folder, "runtime.txt")
        if not upgrade:
            everything.write_text("".join(path.read_text() for path in (RUNTIME, TEST, CUDA) if path.exists()))
        blocks = blocks_by_name(resolve(everything, ["--extra", "test", "--generate-hashes"]))
        runtime = blocks_by_name(resolve(runtime_only, ["--constraint", str(everything)]))
    cuda = {name for name in runtime if name.startswith(CUDA_PREFIXES)}
    named_for_tests = {"triton"}  # needed by both: the kernels are tested through its interpreter without a GPU
    split = {
        RUNTIME: ("to run", runtime.keys() - cuda - {"torch"}),
        TEST: ("to test, on top of requirements.lock", (blocks.keys() - runtime.keys()) | named_for_tests),
        CUDA: ("for a torch build that uses CUDA, on top of requirements.lock", cuda),
    }
    for path, (purpose, names) in split.items():
        path.write_text(HEADER.format(purpose=purpose) + "".join(blocks[name] for name in sorted(names)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
