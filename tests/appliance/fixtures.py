"""Fixtures of the application floor: tiny random models, sample files, settings, an open appliance, the command line.

Folders of tests that need them import the names into their own conftest.
"""

import json
import string
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from appliance.cli import main
from appliance.service import Appliance
from appliance.settings import Settings
from models.reader import ChunkReader
from tests.models.tiny import save_tiny_model
from tests.models.tiny_encoder import save_tiny_encoder

QUESTION = "Who replaced the valve of the pump?"
CHUNK_TOKENS = 128  # a token is a byte here
SAMPLES = {
    "pump.txt": (
        "The pump in hall three was serviced in May. Ines replaced the valve on Monday because rust had eaten it.\n\n"
        "The new valve is made of brass and must be greased twice a year. The old one was thrown away.\n\n"
        "Whoever opens the housing writes it into the log. The log hangs beside the door of the hall.\n"
    ),
    "rules.md": (
        "# House rules\n\nVisitors sign in at the desk and wear a badge.\n\n## Kitchen\n\n"
        "The last one in the kitchen empties the machine. Cups are washed by their owners every evening.\n"
    ),
    "price.html": (
        "<html><head><title>Prices</title></head><body><h1>Prices</h1><p>A glass body costs six euros and a brass body"
        " costs nine euros.</p><p>Orders above five hundred euros are sent without a fee.</p></body></html>"
    ),
}


def save_tiny_embedding(folder: Path) -> Path:
    """Save a random two-layer BERT of 32 dimensions that spells every word in letters."""
    letters = string.ascii_lowercase + string.digits
    return save_tiny_encoder(folder, [*letters, *(f"##{letter}" for letter in letters)], positions=128)


def write_samples(folder: Path) -> Path:
    """Three small documents, about seven chunks."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in SAMPLES.items():
        (folder / name).write_text(text)
    return folder


@dataclass(frozen=True)
class Ran:
    """What a command did."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """Standard output as one JSON value: fails where anything else was printed there."""
        return json.loads(self.out)

    @property
    def error_lines(self) -> list[str]:
        return [line for line in self.err.splitlines() if line.startswith("error: ")]


Cli = Callable[..., Ran]


@pytest.fixture(scope="session")
def tiny_models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `language` and `embedding`, made once a session whoever asks first."""
    folder = tmp_path_factory.getbasetemp() / "tiny-models"
    if not folder.exists():
        save_tiny_embedding(folder / "embedding")
        save_tiny_model(folder / "language")
    return folder


@pytest.fixture
def settings(tmp_path: Path, tiny_models: Path) -> Settings:
    return Settings(
        home=tmp_path / "home",
        model=str(tiny_models / "language"),
        embedding=str(tiny_models / "embedding"),
        device="cpu",
        placer="plain",
        pageable_bytes=64 << 20,
        chunk_tokens=CHUNK_TOKENS,
    )


@pytest.fixture
def sample_files(tmp_path: Path) -> Path:
    return write_samples(tmp_path / "files")


@pytest.fixture
def appliance(settings: Settings) -> Iterator[Appliance]:
    with Appliance.open(settings) as opened:
        yield opened


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The key of every block computed from here on; warming up has no key and does not count."""
    keys: list[str] = []
    block = ChunkReader.block

    def counted(self: ChunkReader, token_ids: Any, key: str, *others: Any, **named: Any) -> Any:
        if key.strip("0"):
            keys.append(key)
        return block(self, token_ids, key, *others, **named)

    monkeypatch.setattr(ChunkReader, "block", counted)
    return keys


@pytest.fixture
def cli(settings: Settings, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Cli:
    """Run `appliance ARGS…` in this process over the home and models of `settings`."""
    monkeypatch.setenv("APPLIANCE_HOME", str(settings.home))
    linked = tmp_path / "models"
    linked.mkdir()
    (linked / "smollm2-135m-instruct").symlink_to(settings.model)
    (linked / "all-minilm-l6-v2").symlink_to(settings.embedding)
    monkeypatch.setenv("APPLIANCE_MODELS", str(linked))

    def run(*arguments: object) -> Ran:
        monkeypatch.setattr(sys, "argv", ["appliance", *map(str, arguments)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main()
        printed = capsys.readouterr()
        return Ran(int(ended.value.code or 0), printed.out, printed.err)

    return run
