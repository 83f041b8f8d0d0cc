"""Bootstrap intervals: how far a mean over questions could be off, had other questions been asked (Efron, 1979)."""

from collections.abc import Callable, Sequence
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
    found = combined_interval([values], lambda mean: mean, percent, resamples)
    if found is None:
        raise ValueError("the values are not finite numbers")
    return found


def combined_interval(
    columns: Sequence[Sequence[float]],
    combine: Callable[..., np.ndarray],
    percent: float = 95.0,
    resamples: int = RESAMPLES,
) -> Interval | None:
    """What `combine` makes of the columns' means, and its interval: questions are resampled, all columns alike.

    One value a question in every column; `combine` takes as many arrays of means. None where the value itself is not a
    finite number (a share of nothing); resamples without one are left out. Raises ValueError as `mean_interval`.
    """
    if not columns or not len(columns[0]) or len({len(column) for column in columns}) != 1:
        raise ValueError("no values: an interval needs at least one question, and as many in every column")
    if not 0 < percent < 100:
        raise ValueError(f"percent is {percent}: choose between 0 and 100")
    samples = [np.asarray(column, dtype=np.float64) for column in columns]
    # A generator of its own for each call: systems measured on the same questions are resampled alike.
    picks = np.random.default_rng(_SEED).integers(0, len(samples[0]), size=(resamples, len(samples[0])))
    with np.errstate(divide="ignore", invalid="ignore"):
        value = float(combine(*(sample.mean(keepdims=True) for sample in samples))[0])
        spread = combine(*(sample[picks].mean(axis=1) for sample in samples))
    if not np.isfinite(value):
        return None
    spread = spread[np.isfinite(spread)]
    low, high = np.percentile(spread, [(100 - percent) / 2, (100 + percent) / 2]) if len(spread) else (value, value)
    return Interval(value, float(low), float(high))
