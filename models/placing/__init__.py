"""Placing blocks into the arena: an ordered list of placers, the first that serves a block takes it."""

from dataclasses import dataclass

from models.arena import Arena
from models.errors import DeviceUnavailable
from models.placing.base import Placer
from models.placing.plain import PlainPlacer
from storage.blocks import EncodedBlock

PLACERS = ("auto", "compiled", "plain")


@dataclass(frozen=True)
class PlacerChoice:
    """The placers to try, best first, and why they were chosen (shown by `appliance status`)."""

    placers: tuple[Placer, ...]
    reason: str

    def find(self, block: EncodedBlock, arena: Arena) -> Placer:
        """The first placer that serves; `plain` ends every list and serves all."""
        return next(placer for placer in self.placers if placer.serves(block, arena))


def choose_placers(asked: str = "auto") -> PlacerChoice:
    """`auto` takes the compiled loops where numba works; `plain` forces the slow twin. Raises DeviceUnavailable."""
    if asked not in PLACERS:
        raise DeviceUnavailable(f"placer {asked!r} is unknown: choose one of {', '.join(PLACERS)}")
    if asked == "plain":
        return PlacerChoice((PlainPlacer(),), "asked for")
    try:
        from models.placing.compiled import CompiledPlacer
    except ImportError as error:
        if asked == "compiled":
            raise DeviceUnavailable(f"the compiled placer cannot be used ({error}): reinstall numba") from error
        return PlacerChoice((PlainPlacer(),), f"numba cannot be loaded ({error})")
    return PlacerChoice(
        (CompiledPlacer(), PlainPlacer()), "asked for" if asked == "compiled" else "numba compiles here"
    )


__all__ = ["PLACERS", "Placer", "PlacerChoice", "PlainPlacer", "choose_placers"]
