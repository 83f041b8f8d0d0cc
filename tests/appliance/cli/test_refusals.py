"""Bad input: one clear line on standard error, an exit code, an empty standard output, and nothing stored is lost."""

import os
import socket
from pathlib import Path

import pytest

from appliance.settings import Settings
from storage.home import Home
from storage.lock import HomeLock
from tests.appliance.fixtures import QUESTION, Cli, Ran
from tests.appliance.stored import snapshot


def assert_one_line(ran: Ran, *words: str) -> None:
    assert ran.code == 1, (ran.out, ran.err)
    assert ran.out == ""
    assert len(ran.error_lines) == 1, ran.err
    assert "Traceback" not in ran.err
    said = [line for line in ran.err.splitlines() if line.strip() and "file/s" not in line and "?file" not in line]
    assert said == ran.error_lines, ran.err
    for word in words:
        assert word in ran.error_lines[0]


def test_no_documents_yet(cli: Cli) -> None:
    assert_one_line(cli("ask", QUESTION), "no documents yet", "appliance ingest")
    assert_one_line(cli("rm", "ghost.txt"), "no document 'ghost.txt'", "appliance list")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["ask", ""], ["the question is empty"]),
        (["ask", "x" * 4000], ["window is 2048", "shorten the question"]),
        (["ask", QUESTION, "--strategy", "magic"], ["magic", "full", "reuse"]),
        (["ask", QUESTION, "--top-k", "0"], ["top-k is 0"]),
        (["ask", QUESTION, "--max-new-tokens", "0"], ["max-new-tokens is 0"]),
        (["ask", QUESTION, "--collection", "nowhere"], ["'nowhere' is unknown", "default"]),
        (["ask", QUESTION, "--model", "/nonexistent"], ["/nonexistent", "no such model folder"]),
        (["ask", QUESTION, "--embedding", "/nonexistent"], ["/nonexistent"]),
        (["ask", QUESTION, "--weights", "int4"], ["int4", "bfloat16"]),
        (["rm", "ghost.txt"], ["no document 'ghost.txt'"]),
        (["list", "--collection", "nowhere"], ["'nowhere' is unknown", "default"]),
    ],
)
def test_what_is_refused(
    cli: Cli, sample_files: Path, settings: Settings, arguments: list[str], words: list[str]
) -> None:
    cli("ingest", sample_files)
    before = snapshot(settings.home)
    assert_one_line(cli(*arguments), *words)
    assert snapshot(settings.home) == before


@pytest.mark.parametrize(
    "arguments",
    [
        ["ask"],
        ["ask", QUESTION, "--top-k", "many"],
        ["ingest"],
        ["ingest", ".", "--kv", "later"],
        ["dance"],
        ["serve", "--port", "0"],
    ],
)
def test_what_click_refuses(cli: Cli, arguments: list[str]) -> None:
    ran = cli(*arguments)
    assert (ran.code, ran.out) == (2, "")
    assert "Error: " in ran.err
    assert "Traceback" not in ran.err


def test_nothing_to_ingest(cli: Cli, tmp_path: Path) -> None:
    folder = tmp_path / "empty"
    folder.mkdir()
    assert_one_line(cli("ingest", folder), str(folder), "no document in it", "txt, md, html, pdf or docx")
    missing = cli("ingest", tmp_path / "gone", "--json")
    assert missing.code == 1
    assert missing.json["documents"][0]["error"] == f"{tmp_path / 'gone'} does not exist: check the path"
    assert f"failed     {tmp_path / 'gone'} does not exist: check the path\n" in cli("ingest", tmp_path / "gone").err
    assert_one_line(cli("ingest", folder, "--collection", ""), "collection's name is empty", "--collection")


@pytest.mark.parametrize(
    "command", [["ingest", "x.txt"], ["ask", QUESTION], ["rm", "x"], ["verify"], ["verify", "--rebuild"]]
)
def test_the_home_is_a_file(cli: Cli, tmp_path: Path, command: list[str]) -> None:
    file = tmp_path / "file"
    file.write_text("mine")
    for home in (file, file / "below"):
        assert_one_line(cli(*command, "--home", home), str(file))
    assert file.read_text() == "mine"


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes everywhere")
def test_the_home_cannot_be_written(cli: Cli, tmp_path: Path) -> None:
    folder = tmp_path / "closed"
    folder.mkdir(mode=0o500)
    assert_one_line(cli("ingest", "x.txt", "--home", folder / "home"), str(folder))


def test_the_home_is_in_use(cli: Cli, sample_files: Path, settings: Settings) -> None:
    cli("ingest", sample_files)
    before = snapshot(settings.home)
    with HomeLock(Home(settings.home)):  # flock counts descriptors: our own counts as another's
        for command in (["ingest", sample_files], ["rm", "pump.txt"], ["verify"], ["verify", "--rebuild"]):
            assert_one_line(cli(*command), f"in use by process {os.getpid()}", "--home")
        for command in (["ask", QUESTION, "--json"], ["list", "--json"], ["status", "--json"]):
            assert cli(*command).code == 0
    assert snapshot(settings.home) == before


def test_the_catalog_is_garbled(cli: Cli, sample_files: Path, settings: Settings) -> None:
    cli("ingest", sample_files)
    Home(settings.home).catalog_file.write_bytes(b"garbage " * 5000)
    for command in (["ask", QUESTION], ["ingest", sample_files], ["list"], ["status"], ["verify"], ["rm", "pump.txt"]):
        assert_one_line(cli(*command), "is damaged", "verify --rebuild")
    assert cli("verify", "--rebuild").code == 0
    assert cli("ask", QUESTION, "--json").json["tiers"]["disk"] == 4


def test_the_port_is_taken(cli: Cli, settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "chdir", lambda _folder: None)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen(1)
        port = taken.getsockname()[1]
        assert_one_line(cli("serve", "--port", port), f"port {port} is taken", "--port")


def test_a_name_that_is_no_unicode(cli: Cli, sample_files: Path) -> None:
    """Standard output takes strict UTF-8 here, as most terminals do."""
    odd = sample_files / os.fsdecode(b"caf\xe9.txt")
    odd.write_text("The text is fine, the name is not.")
    spoken = cli("ingest", sample_files)
    assert spoken.code == 1
    assert f"failed     {sample_files}/caf\ufffd.txt has a name that is not valid UTF-8: " in spoken.err
    entries = cli("ingest", sample_files, "--json").json["documents"]
    assert [entry["error"] for entry in entries if entry["path"] == str(odd)] == [
        f"{sample_files}/caf\ufffd.txt has a name that is not valid UTF-8: rename it and ingest it again"
    ]
    assert cli("ingest", odd).code == 1
    assert_one_line(cli("ask", "caf\udce9"), "not valid Unicode")
    assert_one_line(cli("rm", "caf\udce9"), "not valid Unicode")
