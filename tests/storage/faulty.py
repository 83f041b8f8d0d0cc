"""System calls that fail when told to."""

import errno
import os
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import Any

from storage.durable import SYSTEM, FileOperations


@dataclass
class Faults:
    """Counts the system calls of a publish and fails the `at`-th (from 0) with `error`; `calls` names all made."""

    at: int = -1
    error: int = errno.EIO
    calls: list[str] = field(default_factory=list)

    def operations(self) -> FileOperations:
        """The system's calls, each counted first."""
        return FileOperations(**{f.name: self._counted(f.name, getattr(SYSTEM, f.name)) for f in fields(SYSTEM)})

    def _counted(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*arguments: Any) -> Any:
            self.calls.append(name)
            if len(self.calls) - 1 == self.at:
                if name == "close":
                    call(*arguments)  # a close that reports an error has closed all the same
                raise OSError(self.error, os.strerror(self.error))
            return call(*arguments)

        return counted
