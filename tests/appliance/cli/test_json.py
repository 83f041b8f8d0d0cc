"""What scripts get: exact keys on standard output, everything else on standard error, exit code 0 for success only."""

from pathlib import Path

import pytest

from appliance.settings import Settings
from tests.appliance.fixtures import QUESTION, Cli

ANSWER = {"answer", "sources", "strategy", "tokens", "timing", "tiers", "plan", "warnings"}
SOURCE = {"document", "page", "start", "end", "text", "score"}
TOKENS = {"prompt", "reused", "computed", "recomputed", "generated"}
TIMING = {"retrieve", "load", "place", "compute", "ttft", "total"}
TIERS = {"gpu", "pinned", "pageable", "disk", "computed"}
ENTRY = {"path", "state", "chunks", "error", "notes", "id"}


def test_ingest(cli: Cli, sample_files: Path) -> None:
    (sample_files / "empty.txt").write_text("")
    ran = cli("ingest", sample_files, "--json")
    assert ran.code == 1  # one file could not go in
    assert ran.json.keys() >= {"documents", "chunks", "kv_bytes", "seconds"}
    assert all(entry.keys() == ENTRY for entry in ran.json["documents"])
    entries = {Path(entry["path"]).name: entry for entry in ran.json["documents"]}
    assert {name: entry["state"] for name, entry in entries.items()} == {
        "empty.txt": "failed",
        "price.html": "ready",
        "pump.txt": "ready",
        "rules.md": "ready",
    }
    assert "is empty" in entries["empty.txt"]["error"]
    assert entries["pump.txt"]["error"] is None
    assert ran.json["chunks"] == sum(entry["chunks"] for entry in ran.json["documents"])
    (sample_files / "empty.txt").unlink()
    again = cli("ingest", sample_files, "--json")
    assert again.code == 0
    assert (again.json["chunks"], again.json["kv_bytes"]) == (0, 0)


@pytest.mark.parametrize("strategy", ["auto", "full", "reuse"])
def test_ask(cli: Cli, sample_files: Path, strategy: str) -> None:
    cli("ingest", sample_files)
    ran = cli("ask", QUESTION, "--strategy", strategy, "--top-k", 2, "--max-new-tokens", 8, "--json")
    assert ran.code == 0
    found = ran.json
    assert found.keys() == ANSWER
    assert len(found["sources"]) == 2
    assert all(source.keys() == SOURCE for source in found["sources"])
    assert found["strategy"] == ("full" if strategy == "full" else "reuse")
    assert found["tokens"].keys() == TOKENS
    assert found["timing"].keys() == TIMING
    assert found["tiers"].keys() == TIERS
    assert found["tiers"]["computed" if strategy == "full" else "disk"] == 2
    assert sum(found["tiers"].values()) == 2
    assert found["tokens"]["generated"] <= 8
    timing = found["timing"]
    assert 0 < timing["retrieve"] < timing["ttft"] <= timing["total"]
    assert timing["load"] + timing["place"] + timing["compute"] <= timing["ttft"]


def test_dry_run(cli: Cli, sample_files: Path, settings: Settings) -> None:
    ran = cli("ingest", sample_files, "--dry-run", "--json")
    assert ran.code == 0
    assert ran.json["dry_run"] is True
    assert ran.json.keys() >= {"documents", "chunks", "kv_tokens", "kv_bytes", "hours"}
    assert ran.json["chunks"] > 0
    assert not settings.home.exists()
    spoken = cli("ingest", sample_files, "--dry-run")
    assert "tokens" in spoken.out
    assert "minutes" in spoken.out
    assert "nothing stored" in spoken.out
    assert cli("list", "--json").json == {"documents": []}


def test_status_list_rm_verify(cli: Cli, sample_files: Path) -> None:
    assert cli("list", "--json").json == {"documents": []}
    assert cli("status", "--json").json["documents"] == 0
    cli("ingest", sample_files)
    status = cli("status", "--json").json
    assert (status["documents"], status["blocks_damaged"], status["chunks_without_kv"]) == (3, 0, 0)
    listed = cli("list", "--json").json["documents"]
    assert {row["title"] for row in listed} == {"pump", "House rules", "Prices"}
    verified = cli("verify", "--json")
    assert (verified.code, verified.json["problems"], verified.json["documents"]) == (0, [], 3)
    removed = cli("rm", "pump.txt")
    assert (removed.code, removed.out, removed.err) == (0, "", "removed pump\n")
    rebuilt = cli("verify", "--rebuild", "--json")
    assert rebuilt.code == 0
    assert rebuilt.json == {
        "documents": 2,
        "blocks": cli("status", "--json").json["blocks"],
        "problems": [],
        "blocks_kept": 0,
    }
    assert len(cli("list", "--json").json["documents"]) == 2


def test_for_people(cli: Cli, sample_files: Path) -> None:
    """Data on standard output, progress and messages on standard error."""
    (sample_files / "empty.txt").write_text("")
    ingested = cli("ingest", sample_files)
    assert ingested.out.startswith("ready ")
    assert "KV in" in ingested.out.splitlines()[-1]
    assert "failed     empty.txt is empty" in ingested.err
    assert str(sample_files / "empty.txt") in ingested.err
    assert "chunk" in ingested.err  # the bar
    asked = cli("ask", QUESTION, "--max-new-tokens", 8)
    assert "[1] " in asked.out
    assert "(characters " in asked.out
    assert "first token after" in asked.err
    listed = cli("list").out.splitlines()
    assert listed[0].split()[:2] == ["id", "collection"]
    assert len(listed) == 4
    assert "3 documents" in cli("status").out
    assert cli("verify").out.startswith("blocks ")


def test_options_before_and_after_the_command(cli: Cli, sample_files: Path, tmp_path: Path) -> None:
    cli("ingest", sample_files)  # into APPLIANCE_HOME
    other = tmp_path / "other"
    assert cli("status", "--json").json["documents"] == 3
    assert cli("status", "--json", "--home", other).json["home"] == str(other)
    assert cli("--home", other, "status", "--json").json["home"] == str(other)
    assert cli("--home", tmp_path / "third", "status", "--json", "--home", other).json["home"] == str(other)
    assert cli("--home", other, "ingest", sample_files / "pump.txt", "--device", "cpu").code == 0
    assert cli("list", "--json", "--home", other).json["documents"][0]["title"] == "pump"
    assert len(cli("list", "--json").json["documents"]) == 3
    assert cli("--model", tmp_path / "none", "ask", QUESTION).error_lines[0].startswith(f"error: {tmp_path / 'none'}")
    assert cli("list", "--collection", "nowhere").code == 1


def test_collections(cli: Cli, sample_files: Path) -> None:
    cli("ingest", sample_files / "pump.txt", "--collection", "works")
    cli("ingest", sample_files / "rules.md", "--collection", "office", "--kv", "off")
    assert len(cli("list", "--json", "--collection", "works").json["documents"]) == 1
    sources = cli("ask", QUESTION, "--collection", "office", "--json").json["sources"]
    assert {source["document"] for source in sources} == {"House rules"}
    unknown = cli("ask", QUESTION, "--json")
    assert (unknown.code, unknown.out) == (1, "")
    assert "choose one of office, works" in unknown.error_lines[0]


def test_chunks_that_the_disk_budget_left_without_kv_are_told_of(cli: Cli, sample_files: Path) -> None:
    spoken = cli("ingest", sample_files, "--disk-budget", 1).out
    chunks = cli("status", "--json").json["chunks_without_kv"]
    assert f"{chunks} chunks are without KV, the disk budget is spent: " in spoken.splitlines()[-1]
    assert cli("ingest", sample_files, "--disk-budget", 1, "--json").json["chunks_without_room"] == chunks > 0
    assert "without KV" not in cli("ingest", sample_files).out
