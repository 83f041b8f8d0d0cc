"""A fixed pair: every class in the same codecs, so that nothing is ever encoded again for its hotness."""

from storage.codec_pair import CodecPair
from storage.profiles.base import DEFAULT_SHARES, Profile, classes_from


def fixed_profile(
    pair: CodecPair, reason: str = "asked for", shares: tuple[float, ...] = DEFAULT_SHARES, name: str = ""
) -> Profile:
    """This pair for every class; the profile has its name unless another is given. Raises ValueError (shares)."""
    count = len(shares)
    return Profile(name or pair.name, classes_from((pair,) * count, (reason,) * count, shares))
