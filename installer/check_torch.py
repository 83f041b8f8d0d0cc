"""Check the torch wheel that pip brought before set-up installs it. Standard library only.

    python check_torch.py FOLDER VERSION     ->  one line on standard output: "cpu|cuda SHA256 PATH"

The version is pinned, the build is not: a machine may offer a CPU build from its own package source, and that must do.
A known digest (torch.sha256) passes. An unknown one passes, with a warning, only for a build of the same version that
needs no CUDA packages; anything else is refused, since its companions are locked for the public build.
"""

import hashlib
import re
import sys
import zipfile
from email.parser import HeaderParser
from pathlib import Path

KNOWN = Path(__file__).with_name("torch.sha256")
CUDA_REQUIREMENT = re.compile(r"(nvidia|cuda)-", re.IGNORECASE)


class WrongWheel(Exception):
    """The wheel is not one that set-up may install; the message is one line with the mend."""


def digest_of(path: Path) -> str:
    """SHA-256 of a file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def known_digests(path: Path = KNOWN) -> set[str]:
    """The digests listed in `torch.sha256`."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return {line.split()[0] for line in lines if line and not line.startswith("#")}


def version_and_kind(wheel: Path) -> tuple[str, str]:
    """Version from the wheel's own metadata, and "cuda" where it requires NVIDIA's packages, else "cpu"."""
    with zipfile.ZipFile(wheel) as archive:
        names = [name for name in archive.namelist() if re.fullmatch(r"torch-[^/]+\.dist-info/METADATA", name)]
        if len(names) != 1:
            raise WrongWheel(f"{wheel.name} is not a wheel of torch: fix pip's package source and run again")
        headers = HeaderParser().parsestr(archive.read(names[0]).decode("utf-8"))
    required = [line for line in headers.get_all("Requires-Dist", []) if "extra ==" not in line]
    return str(headers["Version"]), "cuda" if any(map(CUDA_REQUIREMENT.match, required)) else "cpu"


def check(wheel: Path, version: str, known: set[str]) -> tuple[str, str, str]:
    """Return (kind, digest, warning or ""). Raises `WrongWheel` when the wheel must not be installed."""
    found, kind = version_and_kind(wheel)
    digest = digest_of(wheel)
    if found.partition("+")[0] != version:
        raise WrongWheel(f"{wheel.name} is torch {found}, not {version}: fix pip's package source and run again")
    if digest in known:
        return kind, digest, ""
    if kind == "cpu" and "+" in found:
        return kind, digest, f"warning: {wheel.name} (sha256 {digest}) is a CPU build that torch.sha256 does not list"
    raise WrongWheel(
        f"digest mismatch: {wheel.name} has sha256 {digest}, which installer/torch.sha256 does not list: "
        "clear pip's cache (pip cache purge) or fix its package source, and run again"
    )


def main(folder: str, version: str) -> int:
    """Check the one wheel in `folder`; returns the exit status."""
    wheels = sorted(Path(folder).glob("torch-*.whl"))
    try:
        if len(wheels) != 1:
            raise WrongWheel(f"pip brought no wheel of torch {version} for this Python: use Python 3.11 to 3.14")
        kind, digest, warning = check(wheels[0], version, known_digests())
    except (WrongWheel, zipfile.BadZipFile) as error:
        print(error, file=sys.stderr)
        return 1
    if warning:
        print(warning, file=sys.stderr)
    print(kind, digest, wheels[0])
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2]))
