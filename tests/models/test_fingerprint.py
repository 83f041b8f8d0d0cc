"""A model's identity: changes with everything its numbers depend on, and with nothing else."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from models.loading import digest_fields, load_language_model
from models.loading.fingerprint import weights_digest


@pytest.fixture
def folder(llama_folder: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(llama_folder, tmp_path / "model"))


def identity(folder: Path, cache: Path | None = None) -> str:
    return load_language_model(folder, torch.device("cpu"), digest_cache=cache).identity


def other_weights(folder: Path) -> None:
    tensors = load_file(folder / "model.safetensors")
    tensors["model.norm.weight"][3] += 1e-3
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


def other_config(folder: Path) -> None:
    edit(folder / "config.json", rms_norm_eps=2e-6)


def other_rotary(folder: Path) -> None:
    edit(folder / "config.json", rope_parameters={"rope_type": "default", "rope_theta": 20000.0})


def other_dtype(folder: Path) -> None:
    edit(folder / "config.json", dtype="bfloat16")


def other_tokenizer(folder: Path) -> None:
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    tokenizer["pre_tokenizer"]["add_prefix_space"] = True
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))


def edit(file: Path, **fields: object) -> None:
    file.write_text(json.dumps(json.loads(file.read_text()) | fields))


@pytest.mark.parametrize("change", [other_weights, other_config, other_rotary, other_dtype, other_tokenizer])
def test_it_changes_with_what_numbers_depend_on(folder: Path, change: Callable[[Path], None]) -> None:
    before = identity(folder)
    change(folder)
    assert identity(folder) != before


def test_it_does_not_change_with_names_and_versions(folder: Path, tmp_path: Path) -> None:
    before = identity(folder)
    assert identity(folder) == before
    folder.rename(tmp_path / "elsewhere")
    folder = tmp_path / "elsewhere"
    assert identity(folder) == before
    edit(folder / "config.json", transformers_version="0.0.1", _name_or_path="/home/someone")
    (folder / "README.md").write_text("hello")
    assert identity(folder) == before


def test_the_digest_is_remembered(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = tmp_path / "digests.json"
    first = weights_digest(folder, cache)
    assert first == weights_digest(folder, None)
    known = json.loads(cache.read_text())
    assert [entry["digest"] for entry in known.values()] == [first]

    def forbidden() -> None:
        raise AssertionError("hashed again")

    with monkeypatch.context() as patch:
        patch.setattr("models.loading.fingerprint.xxhash.xxh3_128", forbidden)
        assert weights_digest(folder, cache) == first
        with pytest.raises(AssertionError):
            weights_digest(folder, None)
    other = Path(shutil.copytree(folder, tmp_path / "other"))
    other_weights(other)
    assert weights_digest(other, cache) != first
    assert weights_digest(folder, cache) == first
    assert len(json.loads(cache.read_text())) == 2


def test_changed_weights_are_hashed_again(folder: Path, tmp_path: Path) -> None:
    cache = tmp_path / "digests.json"
    first = weights_digest(folder, cache)
    other_weights(folder)
    second = weights_digest(folder, cache)
    assert second != first
    (folder / "more.safetensors").write_bytes(b"x")
    assert len({first, second, weights_digest(folder, cache)}) == 3


def test_a_change_that_keeps_size_and_time_is_noticed(folder: Path, tmp_path: Path) -> None:
    """What `rsync --inplace --times` or a restored backup leaves: the inode's own time still tells."""
    cache = tmp_path / "digests.json"
    weights = folder / "model.safetensors"
    first, found = weights_digest(folder, cache), weights.stat()
    with weights.open("r+b") as file:
        file.seek(-1, os.SEEK_END)
        last = file.read(1)
        file.seek(-1, os.SEEK_END)
        file.write(bytes([last[0] ^ 1]))
    os.utime(weights, ns=(found.st_atime_ns, found.st_mtime_ns))
    assert weights.stat().st_mtime_ns == found.st_mtime_ns
    assert weights_digest(folder, cache) != first


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff", b'{"a": 1}', b"[" * 100_000])
def test_a_spoilt_cache_is_an_empty_one(folder: Path, tmp_path: Path, content: bytes) -> None:
    cache = tmp_path / "digests.json"
    cache.write_bytes(content)
    first = weights_digest(folder, cache)
    assert first == weights_digest(folder, None)
    assert json.loads(cache.read_text())[str(folder.resolve())]["digest"] == first
    for spoilt in (7, None, {"stamp": "?"}, {"digest": first}):
        cache.write_text(json.dumps({str(folder.resolve()): spoilt}))
        assert weights_digest(folder, cache) == first


def test_a_cache_that_cannot_be_written_is_let_be(folder: Path, tmp_path: Path) -> None:
    assert weights_digest(folder, tmp_path) == weights_digest(folder, None)
    assert weights_digest(folder, tmp_path / "no" / "folder.json") == weights_digest(folder, None)


def test_fields_are_told_apart() -> None:
    assert digest_fields(["ab", "c"]) != digest_fields(["a", "bc"]) != digest_fields(["abc"])
    assert digest_fields([]) != digest_fields([""])
