"""The contract of an embedding model: text in, unit vectors out. Documented here and only here."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Vectors = NDArray[np.float32]
"""`[windows, dimensions]` float32, each row of length 1."""


@dataclass(frozen=True)
class WindowSettings:
    """How a text longer than the model can read is cut. Part of the fingerprint: other windows are other vectors.

    `window_pieces` counts the special pieces around a window ([CLS], [SEP]). `overlap_pieces` is what two neighbouring
    windows share at least. The defaults were chosen on XQuAD and NQ, see docs/benchmarks.md.
    """

    window_pieces: int = 128
    overlap_pieces: int = 32
    batch_pieces: int = 1024

    def __post_init__(self) -> None:
        """Raises ValueError when windows could not advance."""
        if not 0 <= self.overlap_pieces < self.window_pieces // 2:
            raise ValueError(f"overlap_pieces must be in [0, {self.window_pieces // 2}), not {self.overlap_pieces}")
        if self.batch_pieces < 1:
            raise ValueError(f"batch_pieces must be at least 1, not {self.batch_pieces}")


class Embedding(Protocol):
    """What retrieval and ingest need. All methods may be called from several threads at once."""

    @property
    def fingerprint(self) -> str:
        """Hex digest of everything the vectors depend on; a collection keeps the one it began with."""
        ...

    @property
    def dimensions(self) -> int:
        """Length of every vector."""
        ...

    def embed_question(self, text: str) -> NDArray[np.float32]:
        """`[dimensions]` float32 of length 1; only the first window of a long question is read. Takes any text."""
        ...

    def embed_windows(self, texts: Sequence[str]) -> list[Vectors]:
        """One array `[windows, dimensions]` a text, in the order given, at least one window each (also for "")."""
        ...
