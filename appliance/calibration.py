"""Calibration: what this model's codecs cost in quality on real documents, kept in the data folder for each model.

`<home>/calibration.json` holds numbers alone, no text of a document; it goes with the folder. A calibration belongs to
one fingerprint: of another model, or other weights, it does not count.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from storage.codec_names import is_known
from storage.codec_pair import CodecPair
from storage.durable import publish_bytes
from storage.errors import StorageError
from storage.home import Home
from storage.profiles import DEFAULT_BOUNDS, CodecMeasurement, Profile, measured_profile, profile_from_json

FILE_NAME = "calibration.json"
FORMAT_VERSION = 1
_LARGEST_BYTES = 16 << 20


@dataclass(frozen=True)
class Calibration:
    """The measurements of one model and the profile they led to.

    `data` is `stored documents`, `sample folder` or `--data`, never a name; `gate` is what
    gate.py makes of it (the quality gate of strategies), kept as it is found.
    """

    fingerprint: str
    model: str
    date: str
    """UTC, ISO 8601, to the second."""
    data: str
    questions: int
    bounds: tuple[float, ...]
    measurements: tuple[CodecMeasurement, ...]
    profile: Profile
    gate: Mapping[str, Any] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """What `calibration_from_json` reads, and the object that `calibrate --json` prints."""
        return {
            "fingerprint": self.fingerprint,
            "model": self.model,
            "date": self.date,
            "data": self.data,
            "questions": self.questions,
            "bounds": list(self.bounds),
            "measurements": [_measurement_json(measurement) for measurement in self.measurements],
            "profile": self.profile.as_json(),
            "gate": dict(self.gate),
        }


@dataclass(frozen=True)
class CalibrationFound:
    """The calibration of a model, or None; `reason` is one line either way."""

    calibration: Calibration | None
    reason: str


def calibrated(
    fingerprint: str,
    model: str,
    date: str,
    data: str,
    questions: int,
    measurements: Sequence[CodecMeasurement],
    bounds: tuple[float, ...] = DEFAULT_BOUNDS,
) -> Calibration:
    """A calibration with the profile that its measurements ask for. Raises ValueError (bounds)."""
    profile = measured_profile(measurements, bounds)
    return Calibration(fingerprint, model, date, data, questions, bounds, tuple(measurements), profile)


def measured_choice(home: Home, fingerprint: str) -> tuple[Profile, str]:
    """The `measured` profile of this model, and in one line where it comes from; without a calibration that counts
    the profile before calibrating, whose classes say why."""
    found = find_calibration(home, fingerprint)
    if found.calibration is not None:
        return found.calibration.profile, found.reason
    profile = measured_profile(())
    return replace(profile, classes=tuple(replace(each, reason=found.reason) for each in profile.classes)), found.reason


def find_calibration(home: Home, fingerprint: str) -> CalibrationFound:
    """The calibration of this model, and where there is none, why not. Never fails: a damaged file is a reason."""
    try:
        entry = _read_all(home).get(fingerprint)
        if entry is None:
            return CalibrationFound(None, "not calibrated yet: run `appliance calibrate`")
        calibration = calibration_from_json(entry)
    except StorageError as error:
        return CalibrationFound(None, str(error))
    if calibration.fingerprint != fingerprint:
        return CalibrationFound(None, str(_damaged()))
    unknown = [each.codec for each in calibration.profile.classes if not is_known(each.codec)]
    if unknown:
        return CalibrationFound(
            None, f"{FILE_NAME} names the codec {unknown[0].name[:40]!r}, unknown here: run `appliance calibrate` again"
        )
    return CalibrationFound(calibration, f"calibrated {calibration.date}, {calibration.questions} questions")


def save_calibration(home: Home, calibration: Calibration) -> None:
    """Keep a calibration beside those of other models, durably and as a whole; what the gate had found stays.

    A damaged file is replaced. Only under the HomeLock. Raises DiskFull, WriteFailed.
    """
    try:
        entries = _read_all(home)
    except StorageError:
        entries = {}
    fresh = calibration.as_json()
    before = entries.get(calibration.fingerprint)
    if not calibration.gate and isinstance(before, dict) and isinstance(before.get("gate"), dict):
        fresh["gate"] = before["gate"]
    content = {"format_version": FORMAT_VERSION, "calibrations": {**entries, calibration.fingerprint: fresh}}
    publish_bytes(home.root / FILE_NAME, [json.dumps(content, indent=1).encode()], home.temporary)


def calibration_from_json(value: Any) -> Calibration:
    """The calibration that `as_json` wrote down. Raises StorageError for anything else."""
    try:
        return Calibration(
            fingerprint=_text(value["fingerprint"]),
            model=_text(value["model"]),
            date=_text(value["date"]),
            data=_text(value["data"]),
            questions=int(value["questions"]),
            bounds=tuple(_number(bound) for bound in value["bounds"]),
            measurements=tuple(_measurement(each) for each in value["measurements"]),
            profile=_profile(value["profile"]),
            gate=dict(value.get("gate") or {}),
        )
    except (AttributeError, KeyError, TypeError, ValueError, OverflowError) as error:
        raise _damaged() from error


def _read_all(home: Home) -> dict[str, Any]:
    """Entries by fingerprint, unchecked; empty where there is no file. Raises StorageError."""
    file = home.root / FILE_NAME
    try:
        if file.stat().st_size > _LARGEST_BYTES:
            raise _damaged()
        found = json.loads(file.read_bytes())
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise StorageError(f"{FILE_NAME} cannot be read ({error.strerror}): run `appliance calibrate` again") from error
    except (ValueError, RecursionError) as error:
        raise _damaged() from error
    if not isinstance(found, dict) or not isinstance(found.get("calibrations"), dict):
        raise _damaged()
    if found.get("format_version") != FORMAT_VERSION:
        raise StorageError(
            f"{FILE_NAME} has the format {found.get('format_version')!r:.20}: update this application, or run"
            " `appliance calibrate` again"
        )
    entries: dict[str, Any] = found["calibrations"]
    return entries


def _measurement_json(measurement: CodecMeasurement) -> dict[str, Any]:
    return {
        "codec": measurement.pair.name,
        "bytes_per_token": measurement.bytes_per_token,
        "kl": measurement.kl,
        "kl_bf16": measurement.kl_bf16,
        "top1": measurement.top1,
        "n": measurement.n,
    }


def _measurement(value: Any) -> CodecMeasurement:
    numbers = {name: _number(value[name]) for name in ("bytes_per_token", "kl", "kl_bf16", "top1")}
    return CodecMeasurement(pair=CodecPair.named(_text(value["codec"])), n=int(value["n"]), **numbers)


def _profile(value: Any) -> Profile:
    try:
        return profile_from_json(value)
    except StorageError as error:
        raise _damaged() from error


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise TypeError("not a text")
    return value


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise TypeError("not a number")
    return float(value)


def _damaged() -> StorageError:
    return StorageError(f"{FILE_NAME} is damaged and does not count: run `appliance calibrate` again")
