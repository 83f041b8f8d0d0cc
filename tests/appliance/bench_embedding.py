"""An embedding model without weights: a text is the bag of its words. Deterministic, quick, and near for near texts."""

import re
import zlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

DIMENSIONS = 64
WINDOW_WORDS = 20


class BagOfWords:
    """An `Embedding`; windows of 20 words. `calls` counts how often it embedded a question."""

    fingerprint = "bag-of-words"
    dimensions = DIMENSIONS

    def __init__(self) -> None:
        self.calls = 0

    def embed_question(self, text: str) -> NDArray[np.float32]:
        self.calls += 1
        return vector_of(re.findall(r"\w+", text.lower()))

    def embed_windows(self, texts: Sequence[str]) -> list[NDArray[np.float32]]:
        embedded = []
        for text in texts:
            words = re.findall(r"\w+", text.lower())
            starts = range(0, max(1, len(words)), WINDOW_WORDS)
            embedded.append(np.stack([vector_of(words[start : start + WINDOW_WORDS]) for start in starts]))
        return embedded


def vector_of(words: Sequence[str]) -> NDArray[np.float32]:
    """`[64]`: each word adds one at a place of its own digest."""
    vector = np.full(DIMENSIONS, 1e-3, dtype=np.float32)
    for word in words:
        vector[zlib.crc32(word.encode()) % DIMENSIONS] += 1
    unit: NDArray[np.float32] = vector / np.linalg.norm(vector)
    return unit
