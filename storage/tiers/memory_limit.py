"""What the memory limit of a container or service leaves. The kernel kills who goes past it, instead of refusing."""

from collections.abc import Iterator
from pathlib import Path, PurePosixPath

_MOUNT = Path("/sys/fs/cgroup")
_MEMBERSHIP = Path("/proc/self/cgroup")
# The limit, what is used, and which part of that is only cached files: version 2 of cgroups, then version 1.
_FILES = (
    ("memory.max", "memory.current", "inactive_file"),
    ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
)


def memory_left_bytes(mount: Path = _MOUNT, membership: Path = _MEMBERSHIP) -> int | None:
    """Bytes this process may still take under the limits of its control groups; None: there is no limit."""
    left = [
        _left_bytes(folder, *names) for folder in _folders(mount, membership) for names in _FILES if folder.is_dir()
    ]
    return min((each for each in left if each is not None), default=None)


def _folders(mount: Path, membership: Path) -> Iterator[Path]:
    """The groups this process is in, up to the root: each may have a limit. A container sees its own as the root."""
    try:
        lines = membership.read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers not in ("", "memory"):
            continue
        group = PurePosixPath(path)
        for each in (group, *group.parents):
            yield mount / controllers / each.relative_to("/")


def _left_bytes(folder: Path, limit: str, used: str, cached: str) -> int | None:
    try:
        limit_bytes = int((folder / limit).read_text())
        used_bytes = int((folder / used).read_text())
        lines = (folder / "memory.stat").read_text().splitlines()
    except (OSError, ValueError):  # not here, or `max`
        return None
    cached_bytes = sum(int(line.split()[1]) for line in lines if line.split()[0] == cached)
    return max(0, limit_bytes - max(0, used_bytes - cached_bytes))
