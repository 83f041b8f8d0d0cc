"""The embedded models: checked, published whole or not at all, found complete only when they are."""

import hashlib
import json
import os
import shutil
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer

from tests.installer.scripts import load_script

models = load_script("models")
CONTENT = {"config.json": b"{}", "model.safetensors": b"weights" * 1000}


def make_source(**changed: str) -> Any:
    digests = {name: hashlib.sha256(content).hexdigest() for name, content in CONTENT.items()}
    return models.Source("small", "a-small-model", "1.0", "Ours.", "pack", digests | changed)


@pytest.fixture
def wheels(tmp_path: Path) -> Path:
    folder = tmp_path / "wheels"
    folder.mkdir()
    with zipfile.ZipFile(folder / "a_small_model-1.0-py3-none-any.whl", "w") as archive:
        for name, content in CONTENT.items():
            archive.writestr(f"pack/{name}", content)
    return folder


@pytest.fixture
def target(tmp_path: Path) -> Path:
    folder = tmp_path / "models"
    folder.mkdir()
    return folder


def untouched(_: Path) -> None:
    """The embedding model is used as it comes."""


def test_published_model_is_complete_and_described(wheels: Path, target: Path) -> None:
    models.publish(make_source(), wheels, target, untouched)
    assert models.complete(make_source(), target)
    assert {path.name for path in target.iterdir()} == {"small"}
    manifest = json.loads((target / "small/manifest.json").read_text())
    assert manifest["files"]["model.safetensors"]["bytes"] == 7000
    assert set(manifest["files"]) == {*CONTENT, "LICENSE", "NOTICE.txt"}


def test_a_complete_model_is_left_alone(wheels: Path, target: Path) -> None:
    models.publish(make_source(), wheels, target, untouched)
    shutil.rmtree(wheels)
    models.publish(make_source(), wheels, target, untouched)


@pytest.mark.parametrize("harm", ["truncate", "remove", "manifest", "other source", "other recipe"])
def test_an_incomplete_model_is_noticed_and_made_again(
    wheels: Path, target: Path, harm: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    models.publish(make_source(), wheels, target, untouched)
    small = target / "small"
    match harm:
        case "truncate":
            os.truncate(small / "model.safetensors", 6999)
        case "remove":
            (small / "config.json").unlink()
        case "manifest":
            (small / "manifest.json").write_text('{"files": ')
        case "other source":
            assert not models.complete(make_source(**{"config.json": "0" * 64}), target)
            return
        case "other recipe":
            monkeypatch.setattr(models, "RECIPE", models.RECIPE + 1)
    assert not models.complete(make_source(), target)
    models.publish(make_source(), wheels, target, untouched)
    assert models.complete(make_source(), target)


def test_a_wrong_digest_stops_before_anything_is_published(wheels: Path, target: Path) -> None:
    with pytest.raises(models.Unusable, match=r"digest mismatch: config\.json .* run again$"):
        models.publish(make_source(**{"config.json": "0" * 64}), wheels, target, untouched)
    assert list(target.iterdir()) == []


def test_a_failing_conversion_leaves_the_old_state(wheels: Path, target: Path) -> None:
    def fails(_: Path) -> None:
        raise models.Unusable("no")

    (target / "small").mkdir()
    (target / "small/mine").touch()
    with pytest.raises(models.Unusable):
        models.publish(make_source(), wheels, target, fails)
    assert [path.name for path in target.rglob("*")] == ["small", "mine"]


def test_damaged_and_missing_wheels_are_named(wheels: Path, target: Path) -> None:
    wheel = next(wheels.iterdir())
    wheel.write_bytes(b"not a zip")
    with pytest.raises(models.Unusable, match=r"a_small_model-1\.0-py3-none-any\.whl is damaged"):
        models.publish(make_source(), wheels, target, untouched)
    wheel.unlink()
    with pytest.raises(models.Unusable, match=r"no wheel of a-small-model 1\.0"):
        models.publish(make_source(), wheels, target, untouched)


def test_what_a_killed_set_up_left_is_swept(target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (target / ".incoming-x/new").mkdir(parents=True)
    monkeypatch.setattr(models, "publish", lambda *_: None)
    models.build(target, target)
    assert not (target / ".incoming-x").exists()


def test_digits_are_split_off_before_the_byte_level_pattern() -> None:
    installed = Path(os.environ.get("APPLIANCE_MODELS", Path(sys.prefix, "share/appliance/models")))
    if not models.complete(models.LANGUAGE, installed):
        pytest.skip("the embedded language model is not set up here (installer/run.sh does it)")
    tokenizer = Tokenizer.from_file(str(installed / models.LANGUAGE.folder / "tokenizer.json"))
    assert tokenizer.encode("a\n\n12").tokens == ["a", "ĊĊ", "1", "2"]
