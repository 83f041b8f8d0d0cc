"""`bench decode` over a tiny model: all say the same tokens, and rows say who was how fast against whom."""

import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from appliance.benches import decode
from appliance.benches.base import BenchRefused
from appliance.benches.decode import DecodeBenchSettings, run_decode_bench, table_of
from appliance.settings import Settings
from models.errors import DeviceUnavailable
from tests.appliance.fixtures import Cli

NEW_TOKENS = 8


def test_all_say_the_same_from_the_same_context(settings: Settings, sample_files: Path) -> None:
    result = run_decode_bench(settings, DecodeBenchSettings((sample_files,), 120, NEW_TOKENS, 2))
    peer, ours = result.rows
    assert (peer.name, ours.name, ours.weights) == ("transformers", "appliance", "bf16")
    assert ours.same_tokens == NEW_TOKENS, "float32: the likeliest tokens must agree"
    assert peer.over_transformers == 1
    assert ours.over_transformers == pytest.approx(peer.ms_per_token / ours.ms_per_token)
    assert ours.tokens_per_s == pytest.approx(1e3 / ours.ms_per_token)
    assert ours.over_llama_cpp is None
    assert result.facts["context_tokens"] == 120
    assert ours.share_of_bandwidth is None
    assert "llama.cpp was not measured" in table_of(result)


def test_random_weights_by_each_way(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """No folder and no peer; the share is that of a memory whose rate is known."""
    monkeypatch.setattr(decode, "measured_rate", lambda device: 1e9)
    for way in ("eager", "plain"):
        chosen = replace(settings, model="random:tiny", decoding=way, linears="plain", attention="plain")
        result = run_decode_bench(chosen, DecodeBenchSettings((), 250, NEW_TOKENS, 1))
        (row,) = result.rows
        assert (row.name, row.over_transformers, row.same_tokens) == (way, None, NEW_TOKENS)
        weights = 2 * (3 * (64 * 64 * 2 + 64 * 32 * 2 + 3 * 64 * 96 + 2 * 64) + 64 + 320 * 64)
        kv = 2 * 2 * 3 * 2 * 16 * (250 + NEW_TOKENS / 2)
        assert result.facts["floors"]["bf16"]["bytes_per_token"] == weights + kv, "the embedding is not read"
        assert row.share_of_bandwidth == pytest.approx((weights + kv) / 1e9 * 1e3 / row.ms_per_token)
        assert f"{row.share_of_bandwidth:.0%}" in table_of(result)
    with pytest.raises(DeviceUnavailable, match="only a GPU"):
        run_decode_bench(replace(settings, decoding="graph"), DecodeBenchSettings((), 20, NEW_TOKENS, 1))


def test_against_llama_cpp(settings: Settings, sample_files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stand-in for the package: told the context once, cut back each round, a token at a time."""
    told: list[tuple[int, list[int]]] = []

    class Llama:
        def __init__(self, *_: object, **options: Any) -> None:
            assert options["n_ctx"] == 40 + NEW_TOKENS
            self.n_tokens, self._ctx = 0, self

        def n_vocab(self) -> int:
            return 300

        def eval(self, ids: list[int]) -> None:
            told.append((self.n_tokens, ids))
            self.n_tokens += len(ids)

        def get_logits(self) -> Any:
            return np.ctypeslib.as_ctypes(np.eye(300, dtype=np.float32)[7])

    stand_in = ModuleType("llama_cpp")
    stand_in.Llama = Llama  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "llama_cpp", stand_in)
    monkeypatch.setattr(decode, "find_spec", lambda name: name == "llama_cpp")
    file = sample_files / "model.gguf"
    bench = DecodeBenchSettings((sample_files,), 40, NEW_TOKENS, 1, llama_cpp=file)
    with pytest.raises(BenchRefused, match="no such GGUF"):
        run_decode_bench(settings, bench)
    file.write_bytes(b"GGUF")
    row = run_decode_bench(settings, bench).rows[-1]
    assert (row.name, row.weights, row.over_llama_cpp) == ("llama.cpp", "model.gguf", 1)
    assert len(told[0][1]) == 40
    assert told[-NEW_TOKENS] == (39, told[0][1][-1:])
    assert told[-1] == (39 + NEW_TOKENS - 1, [7])


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"context_tokens": 1}, "at least 2"),
        ({"rounds": 0}, "at least 1"),
        ({"weights": ("bf16", "int3")}, "'int3'"),
        ({"weights": ()}, "choose from"),
    ],
)
def test_settings_that_are_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(BenchRefused, match=words):
        DecodeBenchSettings(**changes)


def test_a_context_beyond_the_window(settings: Settings, sample_files: Path) -> None:
    with pytest.raises(BenchRefused, match="window of 2048"):
        run_decode_bench(settings, DecodeBenchSettings((sample_files,), 2045))


def test_the_command_takes_a_list_of_weights(cli: Cli) -> None:
    done = cli("bench", "decode", "--weights", "bf16,int3", "--json")
    assert done.code != 0
    assert "int3" in done.error_lines[0]
