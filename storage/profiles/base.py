"""The contract of a profile: classes of hotness, hottest first, and the codecs that the blocks of each are kept in.

A profile is data: it says what a class gets and why, `classes_of` says which block is in which class. New chunks, and
chunks nobody ever asked for, are in the coldest class. To add a profile: write a function beside `paper_profile`.
"""

import math
from dataclasses import dataclass
from typing import Any

from storage.codec_pair import CodecPair
from storage.errors import StorageError

CLASS_NAMES = ("hot", "warm", "cool", "cold")
DEFAULT_SHARES = (0.1, 0.1, 0.1, 0.7)
"""HA-RAG's thresholds (Algorithm 1): a tenth of the chunks each, and the rest."""

_SUM_TOLERANCE = 1e-6


@dataclass(frozen=True)
class HotnessClass:
    """A `share` (0 to 1) of all chunks and the codecs their blocks are kept in; `reason` is one line."""

    name: str
    share: float
    codec: CodecPair
    reason: str


@dataclass(frozen=True)
class Profile:
    """Classes, hottest first; their shares add up to 1. Raises ValueError for anything else."""

    name: str
    classes: tuple[HotnessClass, ...]

    def __post_init__(self) -> None:
        shares = [each.share for each in self.classes]
        if not shares or any(not 0 <= share <= 1 for share in shares) or abs(sum(shares) - 1) > _SUM_TOLERANCE:
            raise ValueError(f"profile {self.name!r} has the shares {shares}: they must be 0 to 1 and add up to 1")
        if len({each.name for each in self.classes}) != len(self.classes):
            raise ValueError(f"profile {self.name!r} names two classes alike: give each its own name")

    @property
    def coldest(self) -> CodecPair:
        """What new chunks are encoded in."""
        return self.classes[-1].codec

    def as_json(self) -> dict[str, Any]:
        """What `profile_from_json` reads."""
        return {
            "name": self.name,
            "classes": [
                {"name": each.name, "share": each.share, "codec": each.codec.name, "reason": each.reason}
                for each in self.classes
            ],
        }


@dataclass(frozen=True)
class CodecMeasurement:
    """What `appliance calibrate` found of one pair on one model, over `n` questions.

    `kl` is the mean KL divergence (nats) of the next-token distributions from those with uncompressed KV, `kl_bf16`
    that of KV in bf16, un-rotated and rotated again, in the same run; `top1` is how often the best token agrees.
    """

    pair: CodecPair
    bytes_per_token: float
    kl: float
    kl_bf16: float
    top1: float
    n: int

    @property
    def kl_above_bf16(self) -> float:
        """What the codec adds to the rounding that reuse has in any case."""
        return self.kl - self.kl_bf16


def classes_from(
    codecs: tuple[CodecPair, ...], reasons: tuple[str, ...], shares: tuple[float, ...]
) -> tuple[HotnessClass, ...]:
    """Classes by number. Raises ValueError where the numbers of codecs, reasons and shares differ."""
    names = CLASS_NAMES if len(codecs) == len(CLASS_NAMES) else tuple(f"class {n + 1}" for n in range(len(codecs)))
    return tuple(
        HotnessClass(name, share, codec, reason)
        for name, share, codec, reason in zip(names, shares, codecs, reasons, strict=True)
    )


def profile_from_json(value: Any) -> Profile:
    """The profile that `as_json` wrote down. Raises StorageError for anything else."""
    try:
        classes = tuple(
            HotnessClass(str(each["name"]), _share(each["share"]), _codec(each["codec"]), str(each["reason"]))
            for each in value["classes"]
        )
        return Profile(str(value["name"]), classes)
    except (KeyError, TypeError, ValueError) as error:
        raise StorageError("a stored profile is damaged: choose a profile again") from error


def _share(value: Any) -> float:
    share = float(value)
    if not math.isfinite(share):
        raise ValueError("not a share")
    return share


def _codec(value: Any) -> CodecPair:
    if not isinstance(value, str) or not value:
        raise TypeError("not the name of a codec")
    return CodecPair.named(value)
