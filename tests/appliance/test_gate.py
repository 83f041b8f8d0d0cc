"""The quality gate: what is passed over and what follows, named strategies, what is kept, and what is measured."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from appliance.calibrating import run_calibration
from appliance.calibration import calibrated, find_calibration, save_calibration
from appliance.errors import ApplianceError
from appliance.gate import LADDER, NEAR_ALONE, Gate, GateEntry, Rung, find_gate, gate_from_json, gated
from appliance.service import Appliance
from models.strategies import StrategyOptions
from storage.codec_pair import CodecPair
from storage.home import Home
from storage.profiles import CodecMeasurement
from tests.appliance.fixtures import Cli

PAIRS = (CodecPair("f32", "f32"), CodecPair("int8", "int8"))
KL = {"bf16": 0.001, "int8": 0.0011, "int4": 0.006, "int3": 0.02}
TOP1 = {"bf16": 0.98, "int8": 0.98, "int4": 0.97, "int3": 0.9}


def a_gate(*top1: float, near: bool = False, plain_fusion: float | None = None) -> Gate:
    """The ladder measured over int4 blocks as far as these agreements go."""
    ladder = [rung for rung in LADDER if rung != NEAR_ALONE]
    entries = [GateEntry(rung, near and n > 0, "int4", top1[n], 0.1, 16) for n, rung in enumerate(ladder[: len(top1)])]
    if plain_fusion is not None:
        entries.append(GateEntry(ladder[1], False, "int4", plain_fusion, 0.1, 16))
    return Gate("calibrated", 0.05, 0.98, tuple(entries), TOP1, KL)


def test_the_fastest_within_the_bound_is_carried_out() -> None:
    name, options, reason, _ = gated(a_gate(0.94), "auto")
    assert (name, options, reason) == ("reuse", StrategyOptions(), "")
    found = gated(a_gate(0.90, 0.95), "auto")
    assert (found.name, found.options) == ("fusion", StrategyOptions(0.15, "spread"))
    assert found.as_json() == {
        "asked": "reuse",
        "carried_out": "fusion",
        "reason": "reuse agrees with full at 90.0% of the tokens here, and the bound is 93.0%",
    }
    assert gated(a_gate(0.90, 0.92, 0.93), "auto").options.ratio == 0.30
    assert gated(a_gate(0.90, 0.92, 0.92, 0.92), "auto").name == "full"


def test_what_is_named_is_carried_out_and_said_to_be_outside() -> None:
    gate = a_gate(0.90, 0.95)
    found = gated(gate, "reuse")
    assert found.name == found.asked == "reuse"
    assert "outside the quality bound, carried out as asked for: reuse agrees" in found.reason
    options = StrategyOptions(0.15, "spread")
    assert gated(gate, "fusion", options) == ("fusion", options, "", "fusion")
    for unmeasured in (("full", None), ("epic", options), ("fusion", StrategyOptions(0.07, "last"))):
        assert gated(gate, *unmeasured).reason == ""


def test_codecs_coarser_than_the_measured_one_were_not_measured() -> None:
    gate = a_gate(0.95)
    assert gate.allowed(LADDER[0], ("int8", "int4", "bf16"))
    assert not gate.allowed(LADDER[0], ("int8", "int3"))
    assert not gate.allowed(LADDER[0], ("e4m3",))
    assert gated(gate, "auto", codecs=("int3",)).name == "full"
    assert "was not measured over int3" in gated(gate, "auto", codecs=("int3",)).reason


def test_blocks_that_saw_their_neighbours_count_only_where_they_are() -> None:
    gate = a_gate(0.90, 0.95, near=True, plain_fusion=0.91)
    assert gated(gate, "auto", near=True).name == "fusion"
    assert gated(gate, "auto", near=False).name == "full"
    assert gate.allowed(Rung("full"), ("int3",), near=False)


def test_blocks_behind_neighbours_alone_come_before_computing_again() -> None:
    plain = a_gate(0.90, 0.95)
    gate = replace(plain, entries=(*plain.entries, GateEntry(NEAR_ALONE, True, "int4", 0.94, 0.1, 16)))
    found = gated(gate, "auto", near=True)
    assert (found.name, found.options.ratio) == ("fusion", 0.0)
    assert gated(gate, "auto", near=False).options.ratio == 0.15
    assert gated(gate, "fusion", StrategyOptions(0.0, "last")).reason == ""
    poor = replace(plain, entries=(*plain.entries, GateEntry(NEAR_ALONE, True, "int4", 0.91, 0.1, 16)))
    assert gated(poor, "auto", near=True).options.ratio == 0.15
    assert "fusion 0% agrees with full at 91.0%" in gated(poor, "fusion", StrategyOptions(0.0, "last")).reason


def test_without_a_calibration_nothing_is_held_back(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    home.create()
    gate = find_gate(home, "a" * 64)
    found = gated(gate, "auto", codecs=("int3",))
    assert found.name == "reuse"
    assert "not calibrated yet: run `appliance calibrate`" in found.reason
    measurements = [CodecMeasurement(CodecPair.named("bf16"), 23040.0, 0.0012, 0.0012, 0.98, 16)]
    before = calibrated("a" * 64, "tiny", "2026-11-21T10:00:00+00:00", "stored documents", 16, measurements)
    save_calibration(home, before)
    assert "strategies were not calibrated yet" in find_gate(home, "a" * 64).reason
    kept = a_gate(0.90, 0.95, near=True)
    save_calibration(home, replace(before, gate=kept.as_json()))
    found_gate = find_gate(home, "a" * 64)
    assert replace(found_gate, reason="calibrated") == kept


@pytest.mark.parametrize(
    "change",
    [
        {"bound": "much"},
        {"bound": float("nan")},
        {"reference_top1": 2},
        {"strategies": 3},
        {"strategies": [{"strategy": "reuse"}]},
        {"codecs": [1]},
    ],
)
def test_a_damaged_gate_is_open_and_says_so(change: dict[str, Any]) -> None:
    gate = gate_from_json({**a_gate(0.5).as_json(), **change})
    assert gated(gate, "auto").name == "reuse"
    assert "damaged: run `appliance calibrate` again" in gated(gate, "auto").reason


def test_calibrating_measures_the_ladder_on_stored_documents(appliance: Appliance, sample_files: Path) -> None:
    appliance.ingest([sample_files])
    report = run_calibration(appliance, questions=2, pairs=PAIRS, top1_bound=0.0)
    gate = find_gate(appliance.home, appliance.engine.fingerprint)
    kept = find_calibration(appliance.home, appliance.engine.fingerprint).calibration
    assert kept == report.calibration
    assert kept.gate == gate.as_json()
    assert gate.codec_top1.keys() == {"bf16", "f32", "int8"}
    assert gate.reference_top1 == gate.codec_top1["bf16"]
    assert gate.entries[0].rung == LADDER[0]
    assert all(entry.n == 2 and 0 <= entry.top1 <= 1 and entry.kl >= 0 for entry in gate.entries)
    # Each way ends with the first rung that is within the bound, or with the last there is.
    for near in (False, True):
        way = [entry for entry in gate.entries if entry.near is near]
        assert [entry.rung for entry in way] == [rung for rung in LADDER if rung.measured_over(near)][: len(way)]
        assert not any(entry.top1 >= gate.least_top1 for entry in way[:-1])
        assert way[-1].top1 >= gate.least_top1 or way[-1].rung == LADDER[-1]
    assert all(entry.rung.label in report.as_table() for entry in gate.entries)
    assert gate.safest().label in report.as_table()
    wide = run_calibration(appliance, questions=1, pairs=PAIRS, top1_bound=1.0)
    assert [entry["strategy"] for entry in wide.calibration.gate["strategies"]] == ["reuse", "fusion"]
    assert gate_from_json(wide.calibration.gate).safest() == LADDER[0]


@pytest.mark.parametrize("bound", [-0.1, 1.1, float("nan")])
def test_a_bound_is_refused(appliance: Appliance, bound: float) -> None:
    with pytest.raises(ApplianceError, match="the bound of the quality gate is"):
        run_calibration(appliance, top1_bound=bound)


def test_the_command(cli: Cli, sample_files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("appliance.calibrating.calibration_pairs", lambda _device: PAIRS)
    cli("ingest", sample_files)
    ran = cli("calibrate", "--questions", 1, "--top1-bound", 1, "--json")
    assert ran.code == 0
    assert ran.json["gate"]["safest"] == "reuse"
    assert all(each["within"] for each in ran.json["gate"]["strategies"])
    assert "quality gate" in cli("calibrate", "--questions", 1).out
    refused = cli("calibrate", "--top1-bound", 2)
    assert refused.code != 0
    assert len(refused.error_lines) == 1
