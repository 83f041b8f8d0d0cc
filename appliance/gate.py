"""The quality gate: how `auto` puts KV together so that answers stay as good as this model's own rounding allows.

`appliance calibrate` measures the rungs of LADDER on the user's documents; what agrees less often with `full` than bf16
rounding alone does, by more than the bound, is passed over for the next safer rung. `full` is always allowed. What the
user names is carried out as named. Nothing here makes an answer exact: a composed one never is.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

from appliance.calibration import find_calibration
from models.strategies import DEFAULT_SELECT, StrategyOptions
from storage.home import Home

DEFAULT_TOP1_BOUND = 0.05
"""How much less often than under bf16 rounding alone the likeliest token may agree with `full`'s."""


@dataclass(frozen=True)
class Rung:
    """A strategy with its ratio and selection."""

    strategy: str
    ratio: float = 0.0
    select: str | None = None

    @property
    def label(self) -> str:
        """`fusion 15% spread`, `fusion 0%`."""
        ratio = f"{self.ratio:.0%}" if self.strategy == "fusion" else ""
        return " ".join(part for part in (self.strategy, ratio, self.select) if part)

    def measured_over(self, near: bool) -> bool:
        """Whether it is to be measured over blocks read behind their neighbours (`near`), or over plain ones."""
        return self.strategy == "fusion" if near else self != NEAR_ALONE


NEAR_ALONE = Rung("fusion", 0.0)
"""Blocks read behind their neighbours and nothing computed again: the offline stage alone, as fast as `reuse`."""

LADDER = (
    Rung("reuse"),
    NEAR_ALONE,
    Rung("fusion", 0.15, DEFAULT_SELECT),
    Rung("fusion", 0.30, DEFAULT_SELECT),
    Rung("fusion", 0.50, DEFAULT_SELECT),
)
"""From the fastest to the safest; after the last comes `full`."""


@dataclass(frozen=True)
class GateEntry:
    """A rung measured over blocks of one codec, `near` over those read behind their neighbours.

    `top1`: how often the likeliest token agrees with `full`'s along its answers, of `n` questions; `kl` in nats.
    """

    rung: Rung
    near: bool
    codec: str
    top1: float
    kl: float
    n: int


@dataclass(frozen=True)
class Gate:
    """What was measured of one model. `reference_top1` is the agreement under bf16 rounding alone.

    `codec_kl` and `codec_top1` are those of each codec alone, nothing reused. Without entries nothing is known: then
    `reason` says why, and nothing is held back.
    """

    reason: str
    bound: float = DEFAULT_TOP1_BOUND
    reference_top1: float = 1.0
    entries: tuple[GateEntry, ...] = ()
    codec_top1: Mapping[str, float] = field(default_factory=dict)
    codec_kl: Mapping[str, float] = field(default_factory=dict)

    @property
    def least_top1(self) -> float:
        """The least agreement that is within the bound."""
        return self.reference_top1 - self.bound

    def allowed(self, rung: Rung, codecs: Sequence[str] = (), near: bool = True) -> bool:
        """Whether a rung stays within the bound over blocks of all these codecs (none named: as it was measured).

        `near`: whether the blocks that `fusion` takes were read behind their neighbours. A codec counts as measured
        where a coarser one was, by the KL of each alone.
        """
        if rung.strategy == "full" or not self.entries:
            return True
        fitting = [e for e in self.entries if e.rung == rung and (not e.near or near)]
        return any(self._within(entry) and self._covers(entry, codecs) for entry in fitting)

    def safest(self, codecs: Sequence[str] = (), near: bool = True) -> Rung:
        """The first rung of the ladder that is allowed; `full` where none is."""
        return next((rung for rung in LADDER if self.allowed(rung, codecs, near)), Rung("full"))

    def outside(self, rung: Rung, codecs: Sequence[str] = (), near: bool = True) -> str:
        """Why a rung is not allowed, in one line; "" where it is, or was not measured at all."""
        fitting = [e for e in self.entries if e.rung == rung and (not e.near or near)]
        if not fitting or self.allowed(rung, codecs, near):
            return ""
        best = max(fitting, key=lambda entry: entry.top1)
        if self._within(best):
            return f"{rung.label} was not measured over {', '.join(sorted(set(codecs)))}: run `appliance calibrate`"
        return (
            f"{rung.label} agrees with full at {best.top1:.1%} of the tokens here,"
            f" and the bound is {self.least_top1:.1%}"
        )

    def as_json(self) -> dict[str, Any]:
        """What `gate_from_json` reads, and the `gate` of `calibrate --json`."""
        return {
            "bound": self.bound,
            "reference_top1": self.reference_top1,
            "least_top1": self.least_top1,
            "safest": self.safest().label,
            "strategies": [
                {
                    **asdict(entry.rung),
                    **{name: getattr(entry, name) for name in ("near", "codec", "top1", "kl", "n")},
                    "within": self._within(entry),
                }
                for entry in self.entries
            ],
            "codecs": [
                {"codec": name, "top1": top1, "kl": self.codec_kl[name], "within": top1 >= self.least_top1}
                for name, top1 in self.codec_top1.items()
            ],
        }

    def _within(self, entry: GateEntry) -> bool:
        return entry.top1 >= self.least_top1

    def _covers(self, entry: GateEntry, codecs: Sequence[str]) -> bool:
        coarsest = self.codec_kl.get(entry.codec, -math.inf)
        return all(name == entry.codec or self.codec_kl.get(name, math.inf) <= coarsest for name in codecs)


class Gated(NamedTuple):
    """What is carried out, and why where that is not what was asked for ("" otherwise)."""

    name: str
    options: StrategyOptions
    reason: str
    asked: str

    def as_json(self) -> dict[str, str]:
        """The `gate` of an answer's plan."""
        return {"asked": self.asked, "carried_out": self.name, "reason": self.reason}


def gated(
    gate: Gate,
    wanted: str,
    options: StrategyOptions | None = None,
    codecs: Sequence[str] = (),
    near: bool = True,
) -> Gated:
    """What to carry out for `wanted`: for `auto` the fastest that is within the bound, else what was named.

    `codecs` are those of the prompt's blocks, `near` says whether all that `fusion` would take were read behind their
    neighbours.
    """
    options = options or StrategyOptions()
    if wanted != "auto":
        select = options.select if options.ratio else None  # without a token to compute again nothing is chosen
        named = Rung(wanted, options.ratio, select) if wanted == "fusion" else Rung(wanted)
        why = gate.outside(named, codecs, near)
        return Gated(wanted, options, why and f"outside the quality bound, carried out as asked for: {why}", wanted)
    if not gate.entries:
        return Gated("reuse", options, gate.reason, "reuse")
    rung = gate.safest(codecs, near)
    if rung == LADDER[0]:
        return Gated("reuse", options, "", "reuse")
    chosen = StrategyOptions(rung.ratio, rung.select or options.select) if rung.strategy == "fusion" else options
    return Gated(rung.strategy, chosen, gate.outside(LADDER[0], codecs, near), "reuse")


def find_gate(home: Home, fingerprint: str) -> Gate:
    """The gate of this model; without a calibration one that holds nothing back and says why. Never fails."""
    found = find_calibration(home, fingerprint)
    if found.calibration is None:
        return Gate(f"the quality gate is open: {found.reason}")
    return gate_from_json(found.calibration.gate, found.reason)


def gate_from_json(value: Mapping[str, Any], reason: str = "") -> Gate:
    """The gate that `as_json` wrote down; anything else is a gate that holds nothing back and says so."""
    if not value:
        return Gate("the quality gate is open: strategies were not calibrated yet: run `appliance calibrate`")
    try:
        return Gate(
            reason=reason,
            bound=_share(value["bound"]),
            reference_top1=_share(value["reference_top1"]),
            entries=tuple(_entry(each) for each in value["strategies"]),
            codec_top1={str(each["codec"]): _share(each["top1"]) for each in value["codecs"]},
            codec_kl={str(each["codec"]): _number(each["kl"]) for each in value["codecs"]},
        )
    except (AttributeError, KeyError, TypeError, ValueError, OverflowError):
        return Gate("the quality gate is open: what was kept of it is damaged: run `appliance calibrate` again")


def _entry(each: Mapping[str, Any]) -> GateEntry:
    select = each["select"]
    rung = Rung(str(each["strategy"]), _share(each["ratio"]), None if select is None else str(select))
    numbers = _share(each["top1"]), _number(each["kl"]), int(each["n"])
    return GateEntry(rung, bool(each["near"]), str(each["codec"]), *numbers)


def _number(value: Any) -> float:
    number = float(value)
    if not math.isfinite(number):
        raise ValueError("not a number")
    return number


def _share(value: Any) -> float:
    share = _number(value)
    if not 0 <= share <= 1:
        raise ValueError("not a share")
    return share
