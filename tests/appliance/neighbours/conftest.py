"""A data folder with the samples and loaded models, made once for all tests here."""

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from appliance.engine import Engine
from appliance.service import Appliance
from appliance.settings import Settings
from tests.appliance.fixtures import CHUNK_TOKENS, write_samples
from tests.faults.reencoding_program import settings_of


@pytest.fixture(scope="package")
def begun(tiny_models: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Engine]]:
    """A data folder with the samples, to be copied, and the models."""
    folder = tmp_path_factory.mktemp("begun")
    settings = settings_of(folder / "home", tiny_models / "language", tiny_models / "embedding")
    with Appliance.open(replace(settings, chunk_tokens=CHUNK_TOKENS)) as appliance:
        appliance.ingest([write_samples(folder / "files")])
        appliance.catalog.checkpoint()
        shutil.copytree(settings.home, folder / "copy")
        yield folder / "copy", appliance.engine


@pytest.fixture
def ingested(begun: tuple[Path, Engine], settings: Settings) -> Iterator[Appliance]:
    """An appliance of its own over a copy; the models are the same for all, for loading them takes longest."""
    home, engine = begun
    shutil.copytree(home, settings.home)
    with Appliance.open(settings) as appliance:
        appliance._models._engine = engine
        appliance.hot.serve(engine)
        yield appliance
        appliance._models._engine = None


@pytest.fixture
def read_here(appliance: Appliance, sample_files: Path) -> Appliance:
    """The samples read from files of the test's own."""
    appliance.ingest([sample_files])
    return appliance
