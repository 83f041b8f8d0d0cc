"""A data folder and a fake appliance for every test of the page."""

from pathlib import Path

import pytest

from storage.home import Home
from tests.ui.fake_appliance import FakeAppliance


@pytest.fixture
def home(tmp_path: Path) -> Home:
    home = Home(tmp_path / "home")
    home.create()
    return home


@pytest.fixture
def fake(home: Home) -> FakeAppliance:
    return FakeAppliance(home)
