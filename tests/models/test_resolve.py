"""What `--model` means: a folder, or a hub name the user typed."""

from pathlib import Path

import pytest

from models.errors import ModelMissing
from models.resolve import looks_like_hub_name, resolve_model, settled_name


def test_only_an_owner_and_a_name_that_are_not_here_are_a_hub_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "models").mkdir()
    assert looks_like_hub_name("Qwen/Qwen2.5-7B-Instruct")
    for text in ("models/tiny", "./models/tiny", "/models/tiny", "../a/b", "~/a", "tiny", "a/b/c"):
        assert not looks_like_hub_name(text), text


def test_a_folder_means_the_same_after_the_working_folder_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "models" / "tiny").mkdir(parents=True)
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path)
    settled = settled_name("models/tiny")
    monkeypatch.chdir(tmp_path / "empty")
    assert settled == str(tmp_path / "models" / "tiny")
    assert not looks_like_hub_name(settled)
    assert settled_name("Qwen/Qwen2.5-7B-Instruct") == "Qwen/Qwen2.5-7B-Instruct"


def test_a_mistyped_folder_is_missing_and_never_looked_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "models").mkdir()
    with pytest.raises(ModelMissing, match="no such model folder"):
        resolve_model(settled_name("models/tinny"))
