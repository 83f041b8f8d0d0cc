"""An appliance with documents, that must have given everything back when a test ends; and a hold on the model."""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from appliance.service import Appliance
from appliance.settings import Settings
from models.execution import Begun, Execution
from models.executor import Executor
from tests.appliance.fixtures import CHUNK_TOKENS, appliance, sample_files, settings, tiny_models, write_samples

__all__ = ["appliance", "sample_files", "settings", "tiny_models"]

PATIENCE_S = 20.0


@pytest.fixture(scope="module")
def opened(tiny_models: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Appliance]:
    """With the samples and their KV; tests of a module share it."""
    folder = tmp_path_factory.mktemp("opened")
    with Appliance.open(settings_of(tiny_models, folder / "home")) as appliance:
        appliance.ingest([write_samples(folder / "files")])
        yield appliance


@pytest.fixture
def stored(opened: Appliance) -> Iterator[Appliance]:
    """Afterwards no lease is out, every arena is free, and so is the model's turn."""
    yield opened
    assert_all_given_back(opened)


def settings_of(models: Path, home: Path) -> Settings:
    """As the fixture `settings`, in any folder."""
    language, embedding = str(models / "language"), str(models / "embedding")
    return Settings(
        home, language, embedding, "cpu", placer="plain", pageable_bytes=64 << 20, chunk_tokens=CHUNK_TOKENS
    )


def assert_all_given_back(appliance: Appliance) -> None:
    """Nothing is held by any question, and the next one is answered."""
    assert appliance._asking.wait_until_idle(PATIENCE_S)
    counts = appliance.status()["questions"]
    assert (counts["queued"], counts["running"]) == (0, 0)
    assert counts["arenas_free"] == appliance.settings.answers_at_once
    with appliance.turns.background():
        assert appliance.store.leases_out == 0
    assert appliance.answer("Who?", strategy="reuse", max_new_tokens=2).tokens["generated"] > 0


class Hold:
    """Holds the inference part before it reads a prompt, while `closed`."""

    def __init__(self) -> None:
        self.reached = threading.Semaphore(0)
        self._open = threading.Event()
        self._open.set()

    def close(self) -> None:
        self._open.clear()

    def open(self) -> None:
        self._open.set()

    def passing(self) -> None:
        self.reached.release()
        assert self._open.wait(PATIENCE_S)


@pytest.fixture
def hold(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hold]:
    """Every question's pass goes through it."""
    gate = Hold()
    finish = Executor.finish

    def held(self: Executor, begun: Begun, *others: Any) -> Execution:
        if threading.current_thread().name == "question-inference":
            gate.passing()
        return finish(self, begun, *others)

    monkeypatch.setattr(Executor, "finish", held)
    yield gate
    gate.open()
