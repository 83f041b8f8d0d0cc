"""`measured`: for each class of hotness the smallest codecs that stay within its quality bound on this very model.

Past HA-RAG, whose codecs are fixed whatever they cost in quality; research/measurements.md has the first table.
"""

from collections.abc import Sequence

from storage.codec_pair import CodecPair
from storage.profiles.base import DEFAULT_SHARES, CodecMeasurement, Profile, classes_from
from storage.profiles.fixed import fixed_profile

NAME = "measured"
DEFAULT_BOUNDS = (0.001, 0.002, 0.005, 0.01)
"""Mean KL above the bf16 round trip, hottest class first."""

UNCALIBRATED = "not calibrated yet: run `appliance calibrate`"
_BEFORE_CALIBRATION = CodecPair("int8", "int8")
_FALLBACK = CodecPair("bf16", "bf16")
# These keep the numbers whole: they are what is fallen back to, not compression.
_WHOLE = {_FALLBACK, CodecPair("f32", "f32")}


def measured_profile(
    measurements: Sequence[CodecMeasurement],
    bounds: tuple[float, ...] = DEFAULT_BOUNDS,
    shares: tuple[float, ...] = DEFAULT_SHARES,
) -> Profile:
    """The profile that these measurements of one model ask for; without any, `int8` for all until calibrated.

    A colder class never gets a larger pair than a hotter one, whatever its bound. Raises ValueError (shares).
    """
    if not measurements:
        return fixed_profile(_BEFORE_CALIBRATION, UNCALIBRATED, shares, NAME)
    smallest_first = sorted(
        (found for found in measurements if found.pair not in _WHOLE),
        key=lambda found: (found.bytes_per_token, found.kl_above_bf16, found.pair),
    )
    codecs: list[CodecPair] = []
    reasons: list[str] = []
    hotter: CodecMeasurement | None = None
    for bound in bounds:
        chosen = next((found for found in smallest_first if found.kl_above_bf16 <= bound), None)
        if hotter is not None and (chosen is None or chosen.bytes_per_token > hotter.bytes_per_token):
            codecs.append(hotter.pair)
            reasons.append(f"{hotter.pair}, as the hotter class: never a larger pair for a colder one")
        elif chosen is None:
            codecs.append(_FALLBACK)
            reasons.append(_unmet(smallest_first, bound))
        else:
            hotter = chosen
            codecs.append(chosen.pair)
            reasons.append(_met(chosen, bound))
    return Profile(NAME, classes_from(tuple(codecs), tuple(reasons), shares))


def _met(found: CodecMeasurement, bound: float) -> str:
    return (
        f"{found.pair}, {found.bytes_per_token:.0f} bytes a token: KL {found.kl_above_bf16:+.5f} above bf16, within"
        f" {bound:g} (top-1 {found.top1:.3f}, n {found.n})"
    )


def _unmet(measurements: Sequence[CodecMeasurement], bound: float) -> str:
    if not measurements:
        return f"{_FALLBACK}: nothing smaller was measured"
    closest = min(measurements, key=lambda found: found.kl_above_bf16)
    return (
        f"{_FALLBACK}: nothing smaller stays within {bound:g} (closest: {closest.pair},"
        f" KL {closest.kl_above_bf16:+.5f} above bf16, n {closest.n})"
    )
