"""A folder inside the data folder for work that ends with the process, such as a bench: removed even after a kill."""

import fcntl
import os
import re
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from storage.home import Home

_NAME = re.compile(r"bench-(\d+)-[0-9a-f]{16}")


@contextmanager
def scratch_folder(home: Home) -> Iterator[Path]:
    """An empty folder `bench-<process>-<random>`, mode 0700, locked while it is in use and removed afterwards.

    Needs no HomeLock: it may lie beside the work of another process. Raises HomeRefused, OSError.
    """
    home.create()
    folder = home.root / f"bench-{os.getpid()}-{secrets.token_hex(8)}"
    folder.mkdir(mode=0o700)
    descriptor = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(descriptor)


def remove_abandoned(home: Home) -> int:
    """Remove the folders whose process is gone; returns how many. What cannot be removed is tried again next time."""
    removed = 0
    for folder in home.root.glob("bench-*"):
        found = _NAME.fullmatch(folder.name)
        if found and folder.is_dir() and not folder.is_symlink() and not _is_in_use(folder, int(found[1])):
            shutil.rmtree(folder, ignore_errors=True)
            removed += not folder.exists()
    return removed


def _is_in_use(folder: Path, process: int) -> bool:
    """Whether its lock is held. A kill may come before the lock: then the process itself is asked for."""
    try:
        descriptor = os.open(folder / "lock", os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return Path(f"/proc/{process}").exists()
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(descriptor)
    return False
