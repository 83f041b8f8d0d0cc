"""`paper`: HA-RAG's own choice of codecs (§III-B, Algorithm 1)."""

from storage.codec_pair import CodecPair
from storage.profiles.base import DEFAULT_SHARES, Profile, classes_from

_CODECS = ("int8t", "e4m3", "e5m2", "gse8")
_REASONS = (
    "HA-RAG, Algorithm 1: S1, INT8 with one scale a tensor",
    "HA-RAG, Algorithm 1: S2, FP8 with 4 exponent bits",
    "HA-RAG, Algorithm 1: S3, FP8 with 5 exponent bits",
    "HA-RAG, Algorithm 1: S4, GSE-8 with shared exponents",
)


def paper_profile(shares: tuple[float, ...] = DEFAULT_SHARES) -> Profile:
    """INT8, E4M3, E5M2 and GSE-8, hottest first. Raises ValueError for other than four shares that add up to 1."""
    codecs = tuple(CodecPair(name, name) for name in _CODECS)
    return Profile("paper", classes_from(codecs, _REASONS, shares))
