"""torch's own OpenMP threads for our compiled code: a second pool would fight with it for the processor."""

import ctypes
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch


class Team:
    """Calls a C function `void(void*)` on as many threads as torch uses, the caller's among them."""

    def __init__(self, function: int) -> None:
        """Raises OSError where torch computes on several threads and its OpenMP is not GNU's."""
        self._function = function
        self._alone = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(function)
        self._parallel = _parallel()
        if self._parallel is None and torch.get_num_threads() > 1:
            raise OSError("torch has no GNU OpenMP of its own")

    @property
    def threads(self) -> int:
        """How many threads a run has now."""
        return torch.get_num_threads() if self._parallel is not None else 1

    def run(self, data: int) -> None:
        """Returns when every thread has returned; `data` is an address."""
        threads = self.threads
        if self._parallel is None or threads == 1:
            self._alone(data)
        else:
            self._parallel(self._function, data, threads, 0)


@lru_cache(maxsize=1)
def _parallel() -> Callable[[int, int, int, int], None] | None:
    """`GOMP_parallel` of the library that torch has loaded: the same name found elsewhere would be another pool."""
    folder = Path(torch.__file__).parent
    found = sorted([*folder.glob("lib/libgomp*"), *folder.parent.glob("torch.libs/libgomp*")])
    if not found:
        return None
    parallel: Any = ctypes.CDLL(str(found[0])).GOMP_parallel
    parallel.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint]
    parallel.restype = None
    return parallel  # type: ignore[no-any-return]
