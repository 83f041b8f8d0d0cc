"""What the parser process may still do: compute, read its own libraries, and nothing else that the kernel can forbid.

Memory, files and core dumps are limited everywhere; network and file access are closed where the kernel lets an
ordinary process do so (namespaces, Landlock), and the result is told, not assumed.
"""

import ctypes
import os
import resource
import sys
from dataclasses import dataclass
from pathlib import Path

from appliance.parsing.limits import ParserLimits

_CLONE_NEWUSER = 0x1000_0000
_CLONE_NEWNET = 0x4000_0000
_PR_SET_NO_NEW_PRIVS = 38
# Landlock, first version (Linux 5.13); the numbers are the same on every architecture.
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_RULE_PATH_BENEATH = 1
_ALL_RIGHTS = (1 << 13) - 1
_READ_FILE, _READ_FOLDER = 1 << 2, 1 << 3


@dataclass(frozen=True)
class Isolation:
    """Which doors of the parser process the kernel has closed."""

    network_closed: bool
    files_closed: bool


def isolate(limits: ParserLimits) -> Isolation:
    """Give up rights for good. Call it before a second thread exists and before any document is opened."""
    resource.setrlimit(resource.RLIMIT_AS, (limits.memory_bytes, limits.memory_bytes))
    resource.setrlimit(resource.RLIMIT_NOFILE, (limits.open_files, limits.open_files))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if not sys.platform.startswith("linux"):
        return Isolation(network_closed=False, files_closed=False)
    libc = ctypes.CDLL(None, use_errno=True)
    # Landlock last: entering a namespace may need more rights than it leaves.
    network_closed = _close_network(libc)
    return Isolation(network_closed, _close_files(libc))


def limit_cpu(seconds: float) -> None:
    """Allow this much more processor time; the kernel ends the process after that, even if nobody else does."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    resource.setrlimit(resource.RLIMIT_CPU, (int(used.ru_utime + used.ru_stime + seconds) + 1, hard))


def _close_network(libc: ctypes.CDLL) -> bool:
    """Move into a network namespace of our own, which has no way out. Without root it takes a user namespace too."""
    return any(libc.unshare(flags) == 0 for flags in (_CLONE_NEWNET, _CLONE_NEWUSER | _CLONE_NEWNET))


class _PathBeneath(ctypes.Structure):
    _pack_ = 1
    _layout_ = "ms"
    _fields_ = (("allowed_access", ctypes.c_uint64), ("parent_fd", ctypes.c_int32))


def _close_files(libc: ctypes.CDLL) -> bool:
    """Allow reading below the libraries only; files that are already open stay open."""
    handled = ctypes.c_uint64(_ALL_RIGHTS)
    rules = libc.syscall(_CREATE_RULESET, ctypes.byref(handled), ctypes.c_size_t(8), ctypes.c_uint32(0))
    if rules < 0:
        return False
    try:
        for folder in _library_folders():
            parent = os.open(folder, os.O_PATH | os.O_CLOEXEC)
            rule = _PathBeneath(_READ_FILE | _READ_FOLDER, parent)
            libc.syscall(_ADD_RULE, rules, _RULE_PATH_BENEATH, ctypes.byref(rule), ctypes.c_uint32(0))
            os.close(parent)
        libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
        return bool(libc.syscall(_RESTRICT_SELF, rules, ctypes.c_uint32(0)) == 0)
    finally:
        os.close(rules)


def _library_folders() -> list[Path]:
    """Where Python and the libraries of the parsers live."""
    own = Path(__file__).resolve().parents[1]
    names = {sys.prefix, sys.base_prefix, str(own), "/usr/lib", "/usr/lib64", "/lib", "/lib64", "/usr/local/lib"}
    return [path for name in sorted(names) if (path := Path(name)).is_dir()]
