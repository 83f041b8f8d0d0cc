"""Rates kept current: what was measured once, corrected by what every question shows."""

import json
import threading
from contextlib import suppress
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from appliance.planner.base import Decision, Rates
from models.executor import Execution

# A new observation counts this much; a burst of a few questions is enough to follow a disk that became busy.
_WEIGHT = 0.3
# Without observations a correction fades, so that a disk once found slow is tried again.
_FADING = 0.9
_LARGEST = 50.0
# Loads shorter than this are all overhead and say nothing of a rate.
_TOLD_BY_MS = 1.0


class CurrentRates:
    """Thread-safe. `reading` and `computing` are how many times slower than measured disk and model are now."""

    def __init__(self, measured: Rates) -> None:
        self._measured = measured
        self._lock = threading.Lock()
        self.reading = 1.0
        self.computing = 1.0

    def rates(self) -> Rates:
        """The rates to plan with now."""
        with self._lock:
            known, reading, computing = self._measured, self.reading, self.computing
        return replace(
            known,
            pass_ms=known.pass_ms * computing,
            row_ms=known.row_ms * computing,
            pair_ms=known.pair_ms * computing,
            disk_bytes_per_ms=known.disk_bytes_per_ms / reading,
        )

    def observe(self, decision: Decision, execution: Execution) -> None:
        """Learn from a question: what it was expected to take, and what it took."""
        took_ms = execution.load_ms + execution.place_ms
        with self._lock:
            if execution.overtaken and decision.disk_ms:
                # Nobody knows how long it would have taken, only that it was too long: find out fast.
                self.reading = min(self.reading * 2, _LARGEST)
            elif decision.choice == "load" and decision.disk_ms > _TOLD_BY_MS:
                rest_ms = decision.load_ms - decision.disk_ms
                self.reading = _corrected(self.reading, max((took_ms - rest_ms) / decision.disk_ms, 0.1))
            else:
                self.reading = 1.0 + (self.reading - 1.0) * _FADING
            as_planned = execution.tokens_computed == decision.compute_tokens
            if decision.compute_ms > _TOLD_BY_MS and as_planned:
                self.computing = _corrected(self.computing, execution.compute_ms / decision.compute_ms)


def _corrected(before: float, times_forecast: float) -> float:
    """The correction after a question that took so many times its forecast (which held the correction before)."""
    seen = before * times_forecast
    return min(max(before + _WEIGHT * (seen - before), 1 / _LARGEST), _LARGEST)


def read_rates(file: Path, identity: str) -> Rates | None:
    """The rates measured before with this model on this computer; None where there are none."""
    try:
        found = _kept(file)[identity]
        rates = Rates(**{field.name: float(found[field.name]) for field in fields(Rates)})
    except (ValueError, KeyError, TypeError, OverflowError):
        return None
    return rates if all(0 < value < float("inf") for value in rates.as_json().values()) else None


def keep_rates(file: Path, identity: str, rates: Rates) -> None:
    """Keep them for the next start; only the last few models'. A full disk means measuring again."""
    kept = _kept(file)
    latest = {name: kept[name] for name in list(kept)[-7:] if name != identity}
    with suppress(OSError):
        file.write_text(json.dumps({**latest, identity: rates.as_json()}, indent=1))


def _kept(file: Path) -> dict[str, Any]:
    """What the file holds by identity; nothing where it is not there or damaged."""
    try:
        kept = json.loads(file.read_text())
    except (OSError, ValueError, RecursionError):
        return {}
    return kept if isinstance(kept, dict) else {}
