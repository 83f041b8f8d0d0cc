"""The embedded models, for tests that need real answers; they skip with a reason where set-up has not put them."""

from pathlib import Path

import pytest

from appliance.settings import EMBEDDED_EMBEDDING, EMBEDDED_MODEL, Settings, models_folder, settings_from


def embedded_settings(home: Path) -> Settings:
    """Settings over the embedded models and a data folder of the test's own."""
    for name in (EMBEDDED_MODEL, EMBEDDED_EMBEDDING):
        if not (models_folder() / name / "model.safetensors").is_file():
            pytest.skip(f"the embedded model {name} is not set up: run installer/test.sh")
    return settings_from(home)
