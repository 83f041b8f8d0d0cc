"""The codec bench: what it measures is the codec and nothing else; its report; its refusals."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from appliance.benches.base import BenchRefused
from appliance.benches.codec_samples import (
    REFERENCE,
    QuestionSamples,
    default_pairs,
    measure_codecs,
    named_pairs,
)
from appliance.benches.codecs import CodecsBenchSettings, run_codecs_bench
from appliance.benches.codecs_result import CodecRow, rows_of
from appliance.settings import Settings
from models.executor import Executor
from models.loading import load_language_model
from models.placing import choose_placers
from models.prompt import PromptTemplate
from models.reader import ChunkReader
from storage.codecs import CODECS, CodecPair
from storage.codecs.plain import PlainCodec
from storage.errors import BlockRefused, StorageError
from tests.appliance.fixtures import Cli

ROW = {
    *("name", "keys", "values", "bytes_per_token", "ratio", "file_bytes_per_token", "file_ratio", "key_rms"),
    *("value_rms", "encode_gb_s", "decode_gb_s", "codes_gb_s", "plain_gb_s", "kl", "kl_low", "kl_high", "top1", "n"),
}


class CoarseCodec(PlainCodec):
    """Keeps numbers to the nearest half: a codec that is bad enough to be seen."""

    def _encode(self, tensor: torch.Tensor, what: str) -> dict[str, torch.Tensor]:
        return {"codes": (torch.round(2 * tensor.float()) / 2).contiguous()}


class RefusingCodec(PlainCodec):
    def _encode(self, tensor: torch.Tensor, what: str) -> dict[str, torch.Tensor]:
        raise BlockRefused(f"{what} do not fit")


@pytest.fixture
def more_codecs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(CODECS, "coarse", CoarseCodec("coarse", "F32"))
    monkeypatch.setitem(CODECS, "never", RefusingCodec("never", "F32"))


@pytest.fixture
def executor(tiny_models: Path) -> Iterator[Executor]:
    model = load_language_model(tiny_models / "language", torch.device("cpu"))
    template = PromptTemplate(model.tokenizer, model.name)
    executor = Executor(ChunkReader(model, template.head, "head", "f32"), choose_placers("plain"))
    yield executor
    executor.close()


def measure(executor: Executor, *names: str) -> list[QuestionSamples]:
    template = PromptTemplate(executor.model.tokenizer, executor.model.name)
    chunks = [template.chunk("Pump", "Rust ate the valve."), template.chunk("Hall", "Ines replaced it on Monday.")]
    prompts = [template.prompt(chunks, question) for question in ("Who replaced it?", "What ate the valve?")]
    return measure_codecs(executor, prompts, [CodecPair.named(name) for name in names])


def test_only_the_codec_is_measured(executor: Executor, more_codecs: None) -> None:
    rows, refused = rows_of(measure(executor, "bf16", "f32", "int8", "coarse", "coarse+int8", "never"))
    by_name = {row.name: row for row in rows}
    assert refused == {"never": "keys do not fit"}
    assert by_name["f32"].kl < 1e-6
    assert by_name["f32"].top1 == 1
    assert by_name["f32"].key_rms == by_name["f32"].value_rms == 0
    kls = [by_name[name].kl for name in ("f32", "bf16", "int8", "coarse")]
    assert kls == sorted(kls)
    assert kls[-1] > 10 * kls[-2]
    for side in ("key_rms", "value_rms"):
        errors = [getattr(by_name[name], side) for name in ("f32", "bf16", "int8", "coarse")]
        assert errors == sorted(errors)
    mixed = by_name["coarse+int8"]
    assert (mixed.keys, mixed.values) == ("coarse", "int8")
    assert (mixed.key_rms, mixed.value_rms) == (by_name["coarse"].key_rms, by_name["int8"].value_rms)
    assert all(row.kl_low <= row.kl <= row.kl_high and row.n == 2 for row in rows)


def test_sizes_are_those_of_the_blocks(executor: Executor) -> None:
    measured = measure(executor, "bf16", "f32", "int8")
    rows = {row.name: row for row in rows_of(measured)[0]}
    geometry = executor.model.geometry
    assert rows["bf16"].bytes_per_token == 4 * geometry.elements(1)
    assert (rows["bf16"].ratio, rows["bf16"].file_ratio, rows["f32"].ratio) == (1, 1, 0.5)
    assert 1 < rows["int8"].ratio < 2
    sample = measured[0].samples["int8"]
    # Two files, each a header of whole 4 KiB pages and data of whole 4 KiB pages.
    assert sample.file_bytes % 4096 == 0
    assert sample.file_bytes >= 2 * 8192
    assert [row.name for row in rows_of(measured)[0]] == ["f32", "bf16", "int8"]  # the largest first
    assert min(row.encode_gb_s for row in rows.values()) > 0
    assert min(row.decode_gb_s for row in rows.values()) > 0


def test_the_order_of_codecs_changes_nothing(executor: Executor, more_codecs: None) -> None:
    """A codec leaves nothing in the arena that the next one could see."""
    there = rows_of(measure(executor, "bf16", "coarse", "int8"))[0]
    back = rows_of(measure(executor, "int8", "coarse", "bf16"))[0]

    def told(rows: tuple[CodecRow, ...]) -> list[tuple[str, float, float]]:
        return [(row.name, row.kl, row.key_rms) for row in rows]

    assert told(there) == told(back)


def test_pairs_by_name() -> None:
    assert named_pairs("int8, f32+int8,int8") == (REFERENCE, CodecPair("int8", "int8"), CodecPair("f32", "int8"))
    with pytest.raises(StorageError, match="'int99' is unknown"):
        named_pairs("int8,bf16+int99")
    pairs = default_pairs()
    assert {pair.name for pair in pairs} >= set(CODECS)
    assert len(set(pairs)) == len(pairs)
    assert any(pair.keys != pair.values for pair in pairs)


@pytest.mark.parametrize("changes", [{"data": ()}, {"questions": 0}, {"prompt_tokens": 0}, {"plot": Path("a.pdf")}])
def test_settings_are_refused(changes: dict[str, object]) -> None:
    with pytest.raises(BenchRefused):
        CodecsBenchSettings(**{"data": (Path("x"),), **changes})  # type: ignore[arg-type]


def test_a_whole_run(settings: Settings, sample_files: Path, tmp_path: Path) -> None:
    chosen = CodecsBenchSettings(
        (sample_files,), 3, named_pairs("f32,int8"), 900, tmp_path / "plot.svg", tmp_path / "dump"
    )
    seen: list[tuple[str, int, int]] = []
    result = run_codecs_bench(settings, chosen, lambda *step: seen.append(step))
    told = result.as_json()
    assert [row["name"] for row in told["rows"]] == ["f32", "bf16", "int8"]
    assert all(row.keys() == ROW for row in told["rows"])
    assert told["fingerprint"]
    assert told["machine"]["cores"] >= 1
    assert (told["questions"], told["refused"]) == (3, {})
    assert told["prompt_tokens"] <= 900
    assert seen[-1][1:] == (3, 3)
    table = result.as_table()
    assert all(name in table for name in ("int8", "bytes/token", "3 questions"))
    assert (tmp_path / "plot.svg").read_text().count("int8") >= 2
    dumped = json.loads((tmp_path / "dump" / "questions.json").read_text())
    assert json.loads((tmp_path / "dump" / "result.json").read_text()) == told
    for row in told["rows"]:
        kl = [question["codecs"][row["name"]]["kl"] for question in dumped]
        assert row["kl"] == pytest.approx(sum(sum(one) / len(one) for one in kl) / 3)
    assert all(question["token_ids"] and question["chunk_spans"] and question["full_ms"] > 0 for question in dumped)


def test_the_command(cli: Cli, sample_files: Path) -> None:
    ran = cli("bench", "codecs", "--data", sample_files, "--questions", 1, "--codecs", "int8", "--json")
    assert ran.code == 0
    assert [row["name"] for row in ran.json["rows"]] == ["bf16", "int8"]
    for wrong, line in ((("--codecs", "int99"), "int99"), (("--plot", "a.pdf"), ".svg"), (("--questions", 0), "1")):
        refused = cli("bench", "codecs", "--data", sample_files, *wrong)
        assert refused.code != 0
        assert len(refused.error_lines) == 1
        assert line in refused.error_lines[0]
