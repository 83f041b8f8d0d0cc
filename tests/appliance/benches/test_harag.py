"""The HA-RAG bench as a whole, on tiny models: what each system reads, keeps and answers; its files; its refusals."""

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from appliance.benches.base import BenchRefused
from appliance.benches.harag import HaragResult, kv_sets, limits, run_harag_bench
from appliance.benches.harag.base import HARAG_MEASURED, SYSTEMS, TURBORAG, TURBORAG_FAST
from appliance.benches.harag.table import table_of
from appliance.calibration import calibrated, save_calibration
from appliance.engine import open_engine
from appliance.settings import Settings
from storage.blocks import encode_block
from storage.codecs import CodecPair
from storage.errors import BlockRefused
from storage.home import Home
from storage.profiles import CodecMeasurement
from tests.appliance.benches.harag_data import tiny_bench, write_questions
from tests.appliance.fixtures import Cli

BF16_PLACED = (TURBORAG_FAST, "dp_no_pin", "dp_pin_only", "dp_only")


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return write_questions(tmp_path / "subjects.jsonl")


def run_dumped(settings: Settings, data: Path, folder: Path, **changes: Any) -> tuple[HaragResult, list[Any]]:
    """A run, and its measured questions as dumped."""
    result = run_harag_bench(settings, tiny_bench(data, dump=folder, **changes))
    return result, json.loads((folder / "questions.json").read_text())


def test_every_system_reads_and_keeps_what_it_should(settings: Settings, data: Path, tmp_path: Path) -> None:
    result, questions = run_dumped(settings, data, tmp_path / "dump")
    assert list(result.systems) == [spec.name for spec in SYSTEMS]
    systems = result.systems
    for system in systems.values():
        assert sum(system.hit_rate.values()) == pytest.approx(1)
        assert system.ttft_ms_mean > 0
        assert len(system.windows) == 6
    for name in (TURBORAG, TURBORAG_FAST, "mp_only"):
        assert systems[name].hit_rate == {"disk": 1}
    kept = {name: set(system.hit_rate) for name, system in systems.items()}
    assert kept["dp_pin_only"] == {"disk", "pinned"}
    assert kept["dp_no_pin"] <= {"disk", "gpu", "pageable"}
    assert kept["dp_only"] == kept["harag_paper"] == kept[HARAG_MEASURED] == {"disk", "gpu", "pinned", "pageable"}
    assert systems[TURBORAG].bytes_read == systems[TURBORAG_FAST].bytes_read > systems["mp_only"].bytes_read
    assert systems["dp_only"].bytes_read < systems["dp_pin_only"].bytes_read < systems[TURBORAG].bytes_read
    assert systems[HARAG_MEASURED].bytes_read < systems["harag_paper"].bytes_read < systems["mp_only"].bytes_read
    for question in questions:
        tokens = {question["systems"][name]["token"] for name in BF16_PLACED}
        assert len(tokens) == 1  # a tier changes nothing
    assert systems[TURBORAG].speedup_mean == systems[TURBORAG].speedup_max == 1
    assert systems[TURBORAG_FAST].load_speedup_fast == systems[TURBORAG].load_speedup == 1
    assert systems[TURBORAG_FAST].load_windows_fast == systems[TURBORAG].load_windows == (1,) * 6


def test_the_result_says_what_it_depends_on(settings: Settings, data: Path, tmp_path: Path) -> None:
    result, questions = run_dumped(settings, data, tmp_path / "dump")
    told = json.loads(json.dumps(result.as_json()))
    assert told["corpus"]["chunks"] == len(json.loads((tmp_path / "dump" / "chunks.json").read_text()))
    assert told["questions"] == {"learning": 16, "measured": 6, "answered": 2, "answer_tokens": 16}
    assert told["skew"]["accesses"] == 22 * 3
    assert told["kv_sets"]["bf16"]["bytes"] > told["kv_sets"]["paper"]["bytes"] > told["kv_sets"]["measured"]["bytes"]
    assert set(told["kv_sets"]["paper"]["codecs"]) == {"int8t", "e4m3", "e5m2", "gse8"}
    assert told["profile"]["source"] == "codecs as asked for with --codecs"
    assert told["systems"][TURBORAG]["rouge1"] == told["systems"][TURBORAG]["top1"] == 1
    assert told["systems"]["dp_only"]["top1"] == told["systems"][TURBORAG_FAST]["top1"]
    assert 0 <= told["systems"]["harag_paper"]["top1"] <= 1
    assert len(told["bars"]) == 6
    learned = {entry["question"] for entry in json.loads((tmp_path / "dump" / "learning.json").read_text())}
    assert not learned & {question["question"] for question in questions}
    for question in questions:
        assert len(question["chunk_spans"]) == 3
        assert question["chunk_spans"][-1][1] < len(question["token_ids"])
        assert question["systems"]["mp_only"]["ttft_ms"] > question["retrieve_ms"]
    table = table_of(result)
    assert all(name in table for name in result.systems)
    assert not list(settings.home.glob("bench-*"))


def test_plots_and_thresholds(settings: Settings, data: Path, tmp_path: Path) -> None:
    result = run_harag_bench(settings, tiny_bench(data, plots=tmp_path / "plots", thresholds=True))
    assert {"harag_param1", "harag_param2", "harag_param4"} < set(result.systems)
    drawn = sorted(file.name for file in (tmp_path / "plots").iterdir())
    assert drawn == [f"figure-{number}.svg" for number in range(10, 17)]


def test_without_thresholds_or_answers_their_figures_are_left_out(
    settings: Settings, data: Path, tmp_path: Path
) -> None:
    result = run_harag_bench(settings, tiny_bench(data, plots=tmp_path / "plots", answers=0))
    assert result.systems[HARAG_MEASURED].top1 is None
    assert len(result.bars()) == 5
    drawn = sorted(file.name for file in (tmp_path / "plots").iterdir())
    assert drawn == [f"figure-{number}.svg" for number in (14, 15, 16)]


def test_a_stored_calibration_is_used(settings: Settings, data: Path) -> None:
    home = Home(settings.home)
    home.create()
    engine = open_engine(settings)
    engine.close()
    measured = [CodecMeasurement(CodecPair.named("int4"), 100.0, 0.002, 0.0015, 0.99, 4)]
    save_calibration(home, calibrated(engine.fingerprint, "tiny", "2026-11-21T00:00:00+00:00", "--data", 4, measured))
    result = run_harag_bench(settings, tiny_bench(data, codecs=(), answers=0))
    assert result.facts["profile"]["source"].startswith("stored calibration")
    assert set(result.facts["kv_sets"]["measured"]["codecs"]) == {"int4"}


def test_without_a_calibration_the_learning_half_is_measured(
    settings: Settings, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        kv_sets, "calibration_pairs", lambda _device: (CodecPair.named("int8"), CodecPair.named("gse8"))
    )
    monkeypatch.setattr(kv_sets, "CALIBRATION_QUESTIONS", 2)
    result = run_harag_bench(settings, tiny_bench(data, codecs=(), answers=0))
    assert result.facts["profile"]["source"].startswith("calibrated for this run on 2 questions of the learning half")
    assert result.facts["profile"]["classes"][0]["reason"]
    assert not (settings.home / "calibration.json").exists()


def test_a_block_that_its_codec_cannot_hold_is_kept_in_bf16(
    settings: Settings, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    encode = encode_block

    def refusing(header: Any, keys: Any, values: Any) -> Any:
        if header.key_codec == "e4m3":
            raise BlockRefused("keys hold numbers too large")
        return encode(header, keys, values)

    monkeypatch.setattr("appliance.benches.harag.stores.encode_block", refusing)
    result = run_harag_bench(settings, tiny_bench(data, answers=0))
    assert set(result.facts["kv_sets"]["paper"]["codecs"]) == {"int8t", "bf16", "e5m2", "gse8"}
    assert any("kept in bf16" in note and "too large" in note for note in result.notes)


def test_a_full_disk_is_refused_before_anything_is_read(
    settings: Settings, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda path: SimpleNamespace(free=100_000))
    with pytest.raises(BenchRefused, match="name fewer --chunks"):
        run_harag_bench(settings, tiny_bench(data))
    assert not list(settings.home.glob("bench-*"))


def test_the_corpus_of_a_borrowed_machine_is_bounded(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, data: Path
) -> None:
    home = Home(settings.home)
    home.create()
    engine = open_engine(settings)
    bench = tiny_bench(data)
    by_time = limits.most_tokens(engine, home, bench)
    assert by_time.timing_alone
    assert "minutes of preparing" in by_time.reason
    monkeypatch.setattr("shutil.disk_usage", lambda path: SimpleNamespace(free=4_000_000))
    by_disk = limits.most_tokens(engine, home, bench)
    assert "half of the free disk" in by_disk.reason
    # 3 layers, 2 heads of 16: 384 bytes a token in bf16 for keys and values; half of 4 MB holds fewer than without.
    assert 3 * 128 < by_disk.tokens < 2_000_000 / 384
    assert not list(home.blocks.iterdir())
    monkeypatch.setattr("shutil.disk_usage", lambda path: SimpleNamespace(free=100_000))
    with pytest.raises(BenchRefused, match="less than one prompt"):
        limits.most_tokens(engine, home, bench)
    engine.close()


def test_random_weights_are_timed_and_not_asked_for_answers(settings: Settings, data: Path) -> None:
    result = run_harag_bench(replace(settings, model="random:tiny"), tiny_bench(data, codecs=()))
    assert result.facts["questions"]["answered"] == 0
    assert result.facts["profile"]["source"].startswith("assumed")
    assert result.systems[HARAG_MEASURED].top1 is None
    assert any("at most" in note for note in result.notes)
    assert any("timing alone" in note for note in result.notes)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"data": ()}, "name at least one question set"),
        ({"questions": 0}, "at least 1"),
        ({"chunk_tokens": 20}, "choose 32 to 512"),
        ({"budget_shares": (50, 40, 20)}, "three percentages"),
        ({"budget_shares": (5, float("nan"), 5)}, "three percentages"),
        ({"budget_shares": (float("nan"), 5, 5)}, "three percentages"),
        ({"budget_shares": (5, 5, float("inf"))}, "three percentages"),
        ({"codecs": tuple(CodecPair.named(name) for name in ("int8", "int8+nonsense", "int4", "int4"))}, "'nonsense'"),
        ({"codecs": (CodecPair.named("int8"),)}, "four codecs"),
    ],
)
def test_settings_that_mean_nothing_are_refused(data: Path, changes: dict[str, Any], words: str) -> None:
    with pytest.raises(BenchRefused, match=words):
        replace(tiny_bench(data), **changes)


def test_the_command(cli: Cli, data: Path, tmp_path: Path) -> None:
    small = ("--chunks", 4, "--questions", 2, "--answers", 1, "--top-k", 2, "--chunk-tokens", 128)
    ran = cli("bench", "harag", "--data", data, *small, "--codecs", "int8,int8,int4,int4", "--json")
    assert ran.code == 0, ran.err
    assert ran.json["systems"][HARAG_MEASURED]["speedup_mean"] > 0
    assert cli("bench", "harag", "--data", data, "--budget-shares", "5,5").code == 2
    for wrong in (("--data", tmp_path / "absent.json"), (), ("--data", data, "--codecs", "int8,nonsense,int8,int8")):
        ran = cli("bench", "harag", *wrong)
        assert (ran.code, len(ran.error_lines)) == (1, 1), ran.err
