"""Placing blocks into the arena: an ordered list of placers, the first that serves a block takes it."""

from dataclasses import dataclass

import torch

from models.arena import Arena
from models.errors import DeviceUnavailable
from models.placing.base import Placer
from models.placing.plain import PlainPlacer
from storage.blocks import EncodedBlock

PLACERS = ("auto", "triton", "compiled", "plain")


@dataclass(frozen=True)
class PlacerChoice:
    """The placers to try, best first, and why they were chosen (shown by `appliance status`)."""

    placers: tuple[Placer, ...]
    reason: str

    def find(self, block: EncodedBlock, arena: Arena) -> Placer:
        """The first placer that serves; `plain` ends every list and serves all."""
        return next(placer for placer in self.placers if placer.serves(block, arena))


def choose_placers(asked: str = "auto", device: torch.device | None = None) -> PlacerChoice:
    """`auto`: the Triton kernel on a GPU, the compiled loops on a CPU, each where it works; `plain`: the slow twin.

    `device` is the arena's; None: whatever is found here. A placer that cannot serve an arena leaves it to the next.
    Raises DeviceUnavailable.
    """
    if asked not in PLACERS:
        raise DeviceUnavailable(f"placer {asked!r} is unknown: choose one of {', '.join(PLACERS)}")
    if asked == "plain":
        return PlacerChoice((PlainPlacer(),), "asked for")
    if asked == "compiled" and device is not None and device.type != "cpu":
        raise DeviceUnavailable(f"the compiled placer serves a CPU only, not {device}: use --placer auto")
    on_gpu = torch.cuda.is_available() if device is None else device.type == "cuda"
    placers: list[Placer] = []
    reasons: list[str] = []
    if asked == "triton" or (asked == "auto" and on_gpu):
        found, reason = _triton_placer(asked, device or torch.device("cuda" if on_gpu else "cpu"))
        placers += found
        reasons.append(reason)
    if asked == "compiled" or device is None or device.type == "cpu":
        found, reason = _compiled_placer(asked)
        reasons += [] if placers else [reason]  # the reason is the first placer's, after what kept better ones out
        placers += found
    return PlacerChoice((*placers, PlainPlacer()), "; ".join(reasons))


def _triton_placer(asked: str, device: torch.device) -> tuple[list[Placer], str]:
    """The placer, or nothing, and why: a few tokens are placed first (it compiles when it is first used)."""
    try:
        from models.placing.triton_placing import TritonPlacer
        from models.placing.triton_probe import why_not

        placer = TritonPlacer()
        amiss = why_not(placer, device)
    except (ImportError, RuntimeError) as error:
        amiss = f"triton cannot be loaded ({error})"
    if amiss is None:
        return [placer], "asked for" if asked == "triton" else "triton compiles for this GPU"
    if asked == "triton":
        raise DeviceUnavailable(f"the triton placer cannot be used: {amiss}; use --placer auto")
    return [], amiss


def _compiled_placer(asked: str) -> tuple[list[Placer], str]:
    """The placer, or nothing, and why."""
    try:
        from models.placing.compiled import CompiledPlacer
    except ImportError as error:
        if asked == "compiled":
            raise DeviceUnavailable(f"the compiled placer cannot be used ({error}): reinstall numba") from error
        return [], f"numba cannot be loaded ({error})"
    return [CompiledPlacer()], "asked for" if asked == "compiled" else "numba compiles here"


__all__ = ["PLACERS", "Placer", "PlacerChoice", "PlainPlacer", "choose_placers"]
