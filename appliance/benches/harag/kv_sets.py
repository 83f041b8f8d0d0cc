"""Which codecs each chunk gets in each KV set: the paper's classes, ours as measured, and bf16."""

from dataclasses import dataclass

from appliance.benches.base import BenchRefused, Progress
from appliance.benches.codec_samples import REFERENCE, measure_codecs
from appliance.benches.codecs_result import rows_of
from appliance.benches.harag.base import BF16, THRESHOLDS, HaragBenchSettings
from appliance.benches.harag.stores import Codecs
from appliance.benches.harag.workload import Workload
from appliance.calibrating import calibration_pairs
from appliance.calibration import find_calibration
from appliance.engine import Engine
from storage.codecs import CodecPair
from storage.home import Home
from storage.profiles import DEFAULT_SHARES, CodecMeasurement, Profile, classes_of, measured_profile, paper_profile
from storage.profiles.base import classes_from

CALIBRATION_QUESTIONS = 8
ASSUMED = tuple(CodecPair.named(name) for name in ("int8", "int8+int4h", "int8+int4h", "int4f"))
"""For random weights, which cannot be measured: about what calibration says of the embedded model."""


@dataclass(frozen=True)
class ChosenProfile:
    """The profile of `harag_measured`, and in one line where it comes from."""

    profile: Profile
    source: str


def choose_profile(
    engine: Engine, home: Home, workload: Workload, bench: HaragBenchSettings, timing_alone: bool, progress: Progress
) -> ChosenProfile:
    """As asked for; else the stored calibration of this model; else measured now, on questions of the learning half.

    Nothing is kept: `appliance calibrate` is the one that stores.
    """
    if bench.codecs:
        return ChosenProfile(_profile_of(bench.codecs, "asked for"), "codecs as asked for with --codecs")
    if timing_alone:
        reason = "assumed: random weights cannot be measured"
        return ChosenProfile(_profile_of(ASSUMED, reason), reason)
    found = find_calibration(home, engine.fingerprint)
    if found.calibration is not None:
        return ChosenProfile(found.calibration.profile, f"stored calibration ({found.reason})")
    asked = workload.learning[:: max(1, len(workload.learning) // CALIBRATION_QUESTIONS)][:CALIBRATION_QUESTIONS]
    prompts = [engine.template.prompt([workload.ids[key] for key in workload.found[text]], text) for text in asked]
    pairs = (REFERENCE, *calibration_pairs(engine.model.device.type))
    rows, refused = rows_of(measure_codecs(engine.executor, prompts, pairs, progress, twins=False))
    kl_bf16 = next((row.kl for row in rows if row.name == REFERENCE.name), None)
    if kl_bf16 is None:
        raise BenchRefused(f"bf16 itself cannot hold this model's KV ({refused[REFERENCE.name]})")
    measurements = [
        CodecMeasurement(CodecPair(row.keys, row.values), row.bytes_per_token, row.kl, kl_bf16, row.top1, row.n)
        for row in rows
    ]
    return ChosenProfile(
        measured_profile(measurements),
        f"calibrated for this run on {len(prompts)} questions of the learning half ({found.reason})",
    )


def kv_sets(workload: Workload, measured: Profile, bench: HaragBenchSettings) -> dict[str, Codecs]:
    """The sets that the systems need: `bf16`, `paper` (Algorithm 1), `measured`, and with thresholds `param1` …"""
    sets: dict[str, Codecs] = {
        "bf16": dict.fromkeys(workload.ids, BF16),
        "paper": _codecs(workload, paper_profile()),
        "measured": _codecs(workload, measured),
    }
    if bench.thresholds:
        sets |= {name: _codecs(workload, paper_profile(shares)) for name, shares in THRESHOLDS.items()}
    return sets


def _codecs(workload: Workload, profile: Profile) -> Codecs:
    classes = classes_of(profile, workload.ranked(), len(workload.ids))
    return {key: each.codec for key, each in classes.items()}


def _profile_of(codecs: tuple[CodecPair, ...], reason: str) -> Profile:
    return Profile("measured", classes_from(codecs, (reason,) * len(codecs), DEFAULT_SHARES))
