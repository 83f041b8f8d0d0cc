"""Bootstrap intervals: how far a mean over questions could be off, had other questions been asked (Efron, 1979)."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

RESAMPLES = 2000
_SEED = 20260


@dataclass(frozen=True)
class Interval:
    """A mean and the ends of its interval."""

    mean: float
    low: float
    high: float


def mean_interval(values: Sequence[float], percent: float = 95.0, resamples: int = RESAMPLES) -> Interval:
    """The mean of one value a question, and its percentile interval; the same values give the same interval.

    Raises ValueError where there is no value or `percent` is not between 0 and 100.
    """
    if not len(values):
        raise ValueError("no values: an interval needs at least one question")
    if not 0 < percent < 100:
        raise ValueError(f"percent is {percent}: choose between 0 and 100")
    sample = np.asarray(values, dtype=np.float64)
    # A generator of its own for each call: systems measured on the same questions are resampled alike.
    picks = np.random.default_rng(_SEED).integers(0, len(sample), size=(resamples, len(sample)))
    low, high = np.percentile(sample[picks].mean(axis=1), [(100 - percent) / 2, (100 + percent) / 2])
    return Interval(float(sample.mean()), float(low), float(high))
