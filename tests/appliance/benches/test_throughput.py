"""The throughput bench on tiny models: both ways ask everything, what it tells, what it refuses."""

import json
from pathlib import Path

import pytest

from appliance.benches import throughput
from appliance.benches.base import BenchRefused
from appliance.benches.throughput import ThroughputBenchSettings, run_throughput_bench, table_of
from appliance.settings import Settings
from tests.appliance.benches.harag_data import write_questions
from tests.appliance.fixtures import Cli

RESULT = {
    *("concurrent_qps", "serial_qps", "speedup", "speedups", "bar", "held", "ttft_ms", "tokens_per_s", "same_answers"),
    *("data", "questions", "different_questions", "rounds", "askers", "new_tokens", "top_k", "strategy", "model"),
    *("fingerprint", "codec", "placer", "linears", "attention", "decoding", "machine"),
}


def test_both_ways_answer_the_same(settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    whole = throughput._ask_all

    def noted(appliance: object, questions: list[str], bench: object, askers: int) -> object:
        asked.append(askers)
        return whole(appliance, questions, bench, askers)  # type: ignore[arg-type]

    monkeypatch.setattr(throughput, "_ask_all", noted)
    data = write_questions(tmp_path / "subjects.jsonl")
    bench = ThroughputBenchSettings((data,), 5, 3, 6, 2, 2, "reuse", tmp_path / "dump")
    result = run_throughput_bench(settings, bench)
    assert asked == [1, 3, 1, 3, 3, 1]  # once to warm up, then in turns first
    told = result.as_json()
    assert told.keys() == RESULT
    assert told["same_answers"] == 1.0
    assert told["speedup"] == told["concurrent_qps"] / told["serial_qps"] > 0
    assert [len(each.answers[way]) for each in result.rounds for way in throughput.WAYS] == [5] * 4
    assert 0 < told["ttft_ms"]["serial"]["p50"] <= told["ttft_ms"]["serial"]["p99"]
    assert "3 askers at once" in table_of(result)
    dumped = json.loads((tmp_path / "dump" / "answers.json").read_text())
    assert [len(each["answers"]["serial"]) for each in dumped] == [5, 5]


@pytest.mark.parametrize(
    ("options", "words"),
    [(("--askers", 1), "askers is 1"), (("--questions", 0), "questions is 0"), (("--strategy", "magic"), "'magic'")],
)
def test_refused_before_anything_is_read(cli: Cli, options: tuple[str, object], words: str) -> None:
    ran = cli("bench", "throughput", *options)
    assert (ran.code, ran.out, len(ran.error_lines)) == (1, "", 1)
    assert words in ran.error_lines[0]


def test_a_dump_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(BenchRefused, match="--dump"):
        ThroughputBenchSettings(dump=tmp_path / "file" / "deeper")
