"""`--dry-run` says what a run would compute, and leaves no trace."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from appliance.ingest import open_and_estimate
from appliance.service import Appliance
from appliance.settings import Settings
from storage.home import Home
from storage.lock import HomeLock
from tests.appliance.fixtures import Cli
from tests.appliance.stored import snapshot


@pytest.mark.parametrize("policy", ["idle", "off"])
def test_kv_that_is_missing_counts(appliance: Appliance, sample_files: Path, policy: str) -> None:
    expected = appliance.estimate([sample_files]).kv_tokens
    appliance.ingest([sample_files], kv=policy)
    guess = appliance.estimate([sample_files])
    assert (guess.chunks, guess.kv_tokens) == (0, expected)
    report = appliance.ingest([sample_files])
    assert report.kv_tokens == guess.kv_tokens > 0
    assert appliance.estimate([sample_files]).kv_tokens == 0


def test_another_model_counts(appliance: Appliance, sample_files: Path, settings: Settings) -> None:
    report = appliance.ingest([sample_files])
    appliance.close()
    other = replace(settings, context="alone")  # other keys, as another model has
    assert open_and_estimate(settings, [sample_files], "default", "now").kv_tokens == 0
    assert open_and_estimate(other, [sample_files], "default", "now").kv_tokens == report.kv_tokens
    assert open_and_estimate(other, [sample_files / "pump.txt"], "default", "idle").kv_tokens < report.kv_tokens


def test_what_an_earlier_run_left_counts(appliance: Appliance, sample_files: Path) -> None:
    with pytest.MonkeyPatch.context() as killed:
        killed.setattr("appliance.ingest.kv.KvIngest.pending", lambda *_: [])
        appliance.ingest([sample_files / "pump.txt"])
    guess = appliance.estimate([sample_files / "rules.md"])
    assert guess.kv_tokens == appliance.ingest([sample_files / "rules.md"]).kv_tokens


def test_the_same_content_counts_once(appliance: Appliance, sample_files: Path) -> None:
    once = appliance.estimate([sample_files])
    shutil.copy(sample_files / "pump.txt", sample_files / "copy.txt")
    twice = appliance.estimate([sample_files])
    assert (twice.chunks, twice.kv_tokens) == (once.chunks, once.kv_tokens)
    assert sorted(entry.state for entry in twice.documents) == ["ready", "ready", "ready", "unchanged"]
    report = appliance.ingest([sample_files])
    assert (twice.chunks, twice.kv_tokens) == (report.chunks, report.kv_tokens)


def test_kv_off_costs_no_kv(appliance: Appliance, sample_files: Path) -> None:
    guess = appliance.estimate([sample_files], kv="off")
    assert guess.chunks > 0
    assert (guess.kv_tokens, guess.kv_bytes, guess.hours) == (0, 0, 0)


def test_what_would_be_removed(appliance: Appliance, sample_files: Path) -> None:
    appliance.ingest([sample_files])
    (sample_files / "pump.txt").unlink()
    states = {Path(entry.path).name: entry.state for entry in appliance.estimate([sample_files]).documents}
    assert states == {"price.html": "unchanged", "pump.txt": "removed", "rules.md": "unchanged"}
    assert len(appliance.documents()) == 3


def test_a_home_that_is_not_there_is_not_made(cli: Cli, sample_files: Path, settings: Settings) -> None:
    ran = cli("ingest", sample_files, "--dry-run", "--json")
    assert ran.code == 0
    assert ran.json["chunks"] > 0
    assert not settings.home.exists()


def test_a_home_in_use_is_only_read(cli: Cli, sample_files: Path, settings: Settings) -> None:
    cli("ingest", sample_files, "--kv", "off")
    before = snapshot(settings.home)
    with HomeLock(Home(settings.home)):  # flock counts descriptors: our own counts as another's
        ran = cli("ingest", sample_files, "--dry-run", "--json")
        assert ran.code == 0
        assert ran.json["kv_tokens"] > 0
        assert cli("ingest", sample_files, "--dry-run", "--kv", "off", "--json").json["kv_bytes"] == 0
    assert snapshot(settings.home) == before
