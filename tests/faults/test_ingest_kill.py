"""Kill -9 at any moment of `ingest`, then ingest again: the same data folder as without, no finished chunk twice."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from appliance.service import Appliance
from appliance.settings import Settings
from tests.appliance.fixtures import QUESTION, write_samples
from tests.appliance.stored import ready_blocks, snapshot
from tests.faults.killing import COUNT_ONLY

ROOT = Path(__file__).resolve().parents[2]
CHUNKS = 4  # of the samples, at the command line's chunk size
TARGETS = [
    ("appliance.ingest.documents:parse_and_chunk", 0),
    ("appliance.ingest.documents:parse_and_chunk", 1),
    ("models.embedding:EmbeddingModel.embed_windows", 1),
    ("storage.catalog:Catalog.publish_document", 0),
    ("storage.catalog:Catalog.publish_document", 2),
    ("storage.catalog:Catalog.keep_token_ids", 0),
    ("models.reader:ChunkReader.block", 0),
    ("models.reader:ChunkReader.block", 2),
    ("storage.catalog:Catalog.publish_block", 0),
    ("storage.catalog:Catalog.publish_block", 3),
    ("storage.catalog:Catalog.close", 0),
]


@dataclass
class Killing:
    """The program of killing.py, and the undisturbed run it made first."""

    process: "subprocess.Popen[str]"

    def run(self, target: str, calls: int, *arguments: object) -> tuple[int, int]:
        """Exit status (negative: the signal) and calls of the target."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        order = {"target": target, "calls": calls, "arguments": [str(argument) for argument in arguments]}
        self.process.stdin.write(json.dumps(order) + "\n")
        self.process.stdin.flush()
        answer = json.loads(self.process.stdout.readline())
        return answer["status"], int(answer["counted"] or -1)


def started(program: str) -> Iterator[Killing]:
    """The program (a module of these tests) that runs what is to be killed, until the fixture ends."""
    process = subprocess.Popen(
        [sys.executable, "-m", program],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    yield Killing(process)
    process.communicate("", timeout=20)


@pytest.fixture(scope="module")
def killing() -> Iterator[Killing]:
    yield from started("tests.faults.killing")


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Shared, because paths and times of the files are part of what is compared."""
    return write_samples(tmp_path_factory.mktemp("killed") / "files")


def command(settings: Settings, files: Path, home: Path) -> list[object]:
    options = ["--home", home, "--model", settings.model, "--embedding", settings.embedding, "--device", "cpu"]
    return ["ingest", files, *options, "--placer", "plain"]


@pytest.fixture(scope="module")
def undisturbed(
    killing: Killing, files: Path, tiny_models: Path, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Any]:
    home = tmp_path_factory.mktemp("undisturbed") / "home"
    settings = Settings(home, str(tiny_models / "language"), str(tiny_models / "embedding"))
    status, reads = killing.run("models.reader:ChunkReader.block", COUNT_ONLY, *command(settings, files, home))
    assert (status, reads) == (0, CHUNKS)
    return snapshot(home)


def finish(settings: Settings, files: Path, undisturbed: dict[str, Any], reads: list[str]) -> None:
    """Ingest again after a kill and compare everything."""
    finished = {row.key for row in ready_blocks(settings.home)} if (settings.home / "catalog.db").exists() else set()
    chosen = Settings(settings.home, settings.model, settings.embedding, device="cpu", placer="plain")
    with Appliance.open(chosen) as appliance:
        assert not appliance.ingest([files]).failed
        assert snapshot(settings.home) == undisturbed
        assert appliance.answer(QUESTION, strategy="reuse", max_new_tokens=4).tiers == {"disk": CHUNKS}
    assert len(reads) == len(set(reads))
    assert set(reads) == {row.key for row in undisturbed["blocks"]} - finished


@pytest.mark.parametrize(("target", "calls"), TARGETS)
def test_killed_before_a_call(
    killing: Killing,
    settings: Settings,
    files: Path,
    undisturbed: dict[str, Any],
    reads: list[str],
    target: str,
    calls: int,
) -> None:
    status, _ = killing.run(target, calls, *command(settings, files, settings.home))
    assert status == -signal.SIGKILL
    finish(settings, files, undisturbed, reads)


@pytest.mark.parametrize("name", ["write", "fsync", "rename", "close"])
def test_killed_before_a_system_call(
    killing: Killing, settings: Settings, files: Path, undisturbed: dict[str, Any], reads: list[str], name: str
) -> None:
    """At the first, a middle and the last such call; each kill hits what the one before it left."""
    other = settings.home.with_name("counted")
    status, total = killing.run(f"system:{name}", COUNT_ONLY, *command(settings, files, other))
    assert status == 0
    assert total >= 3 + CHUNKS
    for calls in (0, total // 2, 0, 1):
        status, _ = killing.run(f"system:{name}", calls, *command(settings, files, settings.home))
        assert status == -signal.SIGKILL
    finish(settings, files, undisturbed, reads)


def test_killed_again_and_again(
    killing: Killing, settings: Settings, files: Path, undisturbed: dict[str, Any], reads: list[str]
) -> None:
    """Every run publishes one block and dies: no run computes what an earlier one finished."""
    publish = "storage.catalog:Catalog.publish_block"
    for finished in range(1, CHUNKS):
        status, _ = killing.run(publish, 1, *command(settings, files, settings.home))
        assert status == -signal.SIGKILL
        assert len(ready_blocks(settings.home)) == finished
    finish(settings, files, undisturbed, reads)
    assert len(reads) == 1


def test_killed_while_a_folder_is_watched(
    settings: Settings, files: Path, undisturbed: dict[str, Any], reads: list[str]
) -> None:
    """A real process, killed from outside as soon as its first document or block appears."""
    process = subprocess.Popen(
        [sys.executable, "-c", "from appliance.cli import main; main()"]
        + [str(word) for word in command(settings, files, settings.home)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stderr=subprocess.DEVNULL,
    )
    end = time.monotonic() + 60
    while process.poll() is None and time.monotonic() < end:
        if any((settings.home / "documents").glob("*.json")):
            process.kill()
            break
        time.sleep(0.001)
    assert process.wait(20) == -signal.SIGKILL
    finish(settings, files, undisturbed, reads)


@pytest.mark.parametrize("calls", [0, 1, 2, 3, 4])
def test_rm_killed(
    killing: Killing, settings: Settings, files: Path, undisturbed: dict[str, Any], reads: list[str], calls: int
) -> None:
    """Deleting that is killed is finished by the next start; ingesting again gives the document back."""
    killing.run("models.reader:ChunkReader.block", COUNT_ONLY, *command(settings, files, settings.home))
    status, _ = killing.run("system:unlink", calls, "rm", "pump.txt", "--home", settings.home)
    assert status in (0, -signal.SIGKILL)
    assert status < 0 or calls > 2
    with Appliance.open(settings) as appliance:
        assert "pump" not in [document.title for document in appliance.documents()]
        held = snapshot(settings.home)
        assert held["files"].keys() == {f"{name}.json" for name in held["chunks"]} | {r.file for r in held["blocks"]}
    chosen = Settings(settings.home, settings.model, settings.embedding, device="cpu", placer="plain")
    with Appliance.open(chosen) as appliance:
        appliance.ingest([files])
    assert snapshot(settings.home)["files"] == undisturbed["files"]
    assert len(reads) == len(set(reads))
