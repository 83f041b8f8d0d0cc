"""Cache-Craft (SIGMOD 2025, §3): tokens that looked outside their own chunk when their KV was computed.

The last layer's attention mass on other chunks was recorded once, offline; nothing is computed when the question comes.
"""

import numpy as np
import torch

from models.selection.base import Selected, Selector, Stitched, highest


class RecordedMass(Selector):
    """The highest recorded mass over all chunks. A chunk without a record has none: its tokens come last."""

    def choose(self, stitched: Stitched, prepared: torch.Tensor | None) -> Selected:
        parts = []
        for index, chunk in enumerate(stitched.prompt.chunks):
            mass = stitched.facts[index].outside_mass if index < len(stitched.facts) else None
            parts.append(np.full(len(chunk), -1.0) if mass is None else np.asarray(mass, dtype=np.float64))
        return Selected(highest(np.concatenate(parts), stitched))
