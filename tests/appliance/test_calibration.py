"""Calibration: measured on what is stored, kept for one model, never trusted when damaged."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from appliance.benches.codecs_result import rows_of
from appliance.calibrating import calibration_pairs, run_calibration
from appliance.calibration import (
    FILE_NAME,
    Calibration,
    calibrated,
    find_calibration,
    save_calibration,
)
from appliance.errors import ApplianceError
from appliance.service import Appliance
from storage.codec_pair import CodecPair
from storage.home import Home
from storage.profiles import CodecMeasurement
from tests.appliance.fixtures import SAMPLES, Cli

PAIRS = (CodecPair("f32", "f32"), CodecPair("int8", "int8"))


@pytest.fixture
def home(tmp_path: Path) -> Home:
    home = Home(tmp_path / "kept")
    home.create()
    return home


def a_calibration(fingerprint: str = "a" * 64) -> Calibration:
    measurements = [
        CodecMeasurement(CodecPair.named("bf16"), 23040.0, 0.0012, 0.0012, 0.98, 16),
        CodecMeasurement(CodecPair.named("int8"), 12000.0, 0.0013, 0.0012, 0.99, 16),
        CodecMeasurement(CodecPair.named("int4+int8"), 9000.0, 0.0059, 0.0012, 0.97, 16),
    ]
    return calibrated(fingerprint, "tiny", "2026-11-21T10:00:00+00:00", "stored documents", 16, measurements)


def test_the_profile_follows_from_the_measurements() -> None:
    found = a_calibration().profile
    assert found.name == "measured"
    assert [each.codec.name for each in found.classes] == ["int8", "int8", "int4+int8", "int4+int8"]


def test_kept_and_found_again_by_model(home: Home) -> None:
    assert find_calibration(home, "a" * 64).calibration is None
    assert "run `appliance calibrate`" in find_calibration(home, "a" * 64).reason
    first, second = a_calibration("a" * 64), replace(a_calibration("b" * 64), bounds=(0.0, 0.1, 0.2, 0.3))
    save_calibration(home, first)
    save_calibration(home, second)
    assert find_calibration(home, "a" * 64).calibration == first
    assert find_calibration(home, "b" * 64).calibration == second
    assert find_calibration(home, "c" * 64).calibration is None
    assert (home.root / FILE_NAME).stat().st_mode & 0o777 == 0o600
    assert not list(home.temporary.iterdir())


def test_what_the_gate_found_stays(home: Home) -> None:
    gated = replace(a_calibration(), gate={"fusion": {"top1": 0.97}})
    save_calibration(home, gated)
    save_calibration(home, a_calibration())
    assert find_calibration(home, "a" * 64).calibration == gated


def broken(change: Callable[[dict[str, object]], object]) -> bytes:
    entry = a_calibration().as_json()
    change(entry)
    return json.dumps({"format_version": 1, "calibrations": {"a" * 64: entry}}).encode()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"\xff\xfe",
        b"[]",
        b"[" * 100_000,
        b'{"format_version": 1}',
        b'{"format_version": 99, "calibrations": {}}',
        b'{"format_version": 1, "calibrations": {"' + b"a" * 64 + b'": 3}}',
        broken(lambda entry: entry.pop("measurements")),
        broken(lambda entry: entry.update(measurements=[{"codec": "int8"}])),
        broken(lambda entry: entry.update(bounds=["x"])),
        broken(lambda entry: entry.update(bounds=[float("nan")])),
        broken(lambda entry: entry.update(profile=None)),
        broken(lambda entry: entry.update(gate=[1])),
        broken(lambda entry: entry.update(questions="many")),
        broken(lambda entry: entry.update(fingerprint="b" * 64)),
    ],
)
def test_a_damaged_file_does_not_count_and_is_replaced(home: Home, content: bytes) -> None:
    (home.root / FILE_NAME).write_bytes(content)
    found = find_calibration(home, "a" * 64)
    assert found.calibration is None
    assert "appliance calibrate" in found.reason
    assert "\n" not in found.reason
    save_calibration(home, a_calibration())
    assert find_calibration(home, "a" * 64).calibration == a_calibration()


def test_a_folder_in_its_place_is_a_reason(home: Home) -> None:
    (home.root / FILE_NAME).mkdir()
    assert find_calibration(home, "a" * 64).calibration is None


def test_stored_documents_are_asked_about(appliance: Appliance, sample_files: Path) -> None:
    appliance.ingest([sample_files])
    report = run_calibration(appliance, questions=4, pairs=PAIRS)
    kept = find_calibration(appliance.home, appliance.engine.fingerprint).calibration
    assert kept == report.calibration
    assert (kept.data, kept.questions) == ("stored documents", 4)
    assert {each.pair.name for each in kept.measurements} == {"bf16", "f32", "int8"}
    assert len({each.kl_bf16 for each in kept.measurements}) == 1
    assert all(each.n == 4 for each in kept.measurements)
    assert report.notes == ()
    written = (appliance.home.root / FILE_NAME).read_text().lower()
    assert not [word for text in SAMPLES.values() for word in text.lower().split() if len(word) > 6 and word in written]
    assert all(
        each.codec.name in report.as_table() and each.reason in report.as_table() for each in kept.profile.classes
    )


def test_nothing_stored_means_the_sample_folder(appliance: Appliance) -> None:
    report = run_calibration(appliance, questions=1, pairs=PAIRS)
    assert report.calibration.data == "sample folder"
    assert any("calibrate again with your documents" in note for note in report.notes)


def test_named_data_and_too_few_questions(appliance: Appliance, sample_files: Path) -> None:
    report = run_calibration(appliance, [sample_files / "rules.md"], 50, pairs=PAIRS)
    assert report.calibration.data == "--data"
    assert report.calibration.questions < 50
    assert any("of 50 questions" in note for note in report.notes)


def test_a_codec_that_is_not_known_does_not_count_and_the_model_is_served(
    appliance: Appliance, sample_files: Path
) -> None:
    """Kept by a later version, say: the folder opens as before calibrating, and says why."""
    appliance.ingest([sample_files])
    kept = a_calibration(appliance.engine.fingerprint)
    measured = [replace(kept.measurements[1], pair=CodecPair.named("int8+int9"))]
    data = (kept.fingerprint, kept.model, kept.date, kept.data, kept.questions, measured)
    save_calibration(appliance.home, calibrated(*data))
    found = find_calibration(appliance.home, kept.fingerprint)
    assert found.calibration is None
    assert "'int8+int9', unknown here: run `appliance calibrate` again" in found.reason
    appliance.close()
    with Appliance.open(appliance.settings) as again:
        profile = again.engine.profile
    assert {each.codec.name for each in profile.classes} == {"int8"}
    assert {each.reason for each in profile.classes} == {found.reason}


def with_kl(monkeypatch: pytest.MonkeyPatch, codec: str, kl: float) -> None:
    """Measuring gives this KL for this codec."""

    def garbled(measured: Any) -> Any:
        rows, refused = rows_of(measured)
        return tuple(replace(row, kl=kl) if row.name == codec else row for row in rows), refused

    monkeypatch.setattr("appliance.calibrating.rows_of", garbled)


@pytest.mark.parametrize("kl", [float("nan"), float("inf")])
def test_a_kl_that_is_no_number_is_not_kept(
    appliance: Appliance, sample_files: Path, monkeypatch: pytest.MonkeyPatch, kl: float
) -> None:
    appliance.ingest([sample_files])
    with_kl(monkeypatch, "int8", kl)
    report = run_calibration(appliance, questions=1, pairs=PAIRS)
    assert "int8: not measured: its KL is not a finite number" in report.notes
    assert find_calibration(appliance.home, appliance.engine.fingerprint).calibration == report.calibration
    assert {each.pair.name for each in report.calibration.measurements} == {"bf16", "f32"}


def test_a_reference_that_is_no_number_is_refused(
    appliance: Appliance, sample_files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    appliance.ingest([sample_files])
    with_kl(monkeypatch, "bf16", float("nan"))
    with pytest.raises(ApplianceError, match="bf16 itself cannot hold"):
        run_calibration(appliance, questions=1, pairs=PAIRS)
    assert not (appliance.home.root / FILE_NAME).exists()


@pytest.mark.parametrize(
    "bounds",
    [
        (0.1,),
        (0.2, 0.1, 0.3, 0.4),
        (-0.1, 0.1, 0.2, 0.3),
        (float("nan"),) * 4,
        (0.001, 0.002, 0.005, float("inf")),
        (0.001, 0.002, 0.005, float("nan")),
    ],
)
def test_bounds_are_refused(appliance: Appliance, bounds: tuple[float, ...]) -> None:
    with pytest.raises(ApplianceError, match="bounds are"):
        run_calibration(appliance, bounds=bounds)


def test_candidates_have_the_reference_and_no_larger_codec() -> None:
    names = {pair.name for pair in calibration_pairs()}
    assert names >= {"bf16", "int8"}
    assert "f32" not in names
    assert not any(part.endswith("h") for name in names for part in name.split("+"))
    assert {"int4h", "int6+int4h"} <= {pair.name for pair in calibration_pairs("cuda")}


def test_the_command(cli: Cli, sample_files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("appliance.calibrating.calibration_pairs", lambda _device: PAIRS)
    cli("ingest", sample_files)
    ran = cli("calibrate", "--questions", 2, "--json")
    assert ran.code == 0
    assert ran.json.keys() >= {"fingerprint", "measurements", "profile", "bounds", "questions", "notes"}
    assert ran.json["questions"] == 2
    spoken = cli("calibrate", "--questions", 1, "--bounds", "0,0,0,9")
    assert spoken.code == 0
    assert "profile measured" in spoken.out
    for wrong in ("1,2", "a,b,c,d", "4,3,2,1"):
        refused = cli("calibrate", "--bounds", wrong)
        assert refused.code != 0
        assert len(refused.error_lines) == 1 or "Error: " in refused.err
