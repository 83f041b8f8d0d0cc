"""The quality lab: full agrees with itself, everything computed again is full, the rest is in between; its refusals."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from appliance.benches.base import BenchRefused, no_progress
from appliance.benches.bootstrap import combined_interval, mean_interval
from appliance.benches.quality import (
    FULL,
    NEAR,
    REUSE,
    ChunkBlocks,
    Lab,
    Measured,
    Method,
    Neighbours,
    QualityBenchSettings,
    embed_passages,
    run_quality_bench,
)
from appliance.benches.quality.gold import contained, exact_match, f1
from appliance.benches.quality.result import METRICS
from appliance.benches.quality.sources import MemoryShelf
from appliance.benches.quality_data import prompt_of, read_corpus, read_questions
from appliance.benches.sentence_questions import CutDocument
from appliance.engine import Engine, open_engine
from appliance.settings import Settings
from models.prompt import Prompt
from storage.codecs import CodecPair
from tests.appliance.fixtures import Cli

F32, INT8 = CodecPair("f32", "f32"), CodecPair("int8", "int8")
ROW = {"name", "select", "ratio", "codec", "n", "n_answered", "n_gold"}


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Six passages about the same things, a question of which each sees five."""
    subjects = ("bees", "copper", "tunnels", "glass", "violins", "rivers")
    entries = [
        {
            "title": "Town",
            "paragraphs": [
                {
                    "context": f"Many {subject} come from place {n}; the bees there like {subject} of place {n}.",
                    "qas": [{"question": f"Where are {subject} from?", "answers": [{"text": f"place {n}"}]}],
                }
                for n, subject in enumerate(subjects)
            ],
        }
    ]
    path = tmp_path / "town.json"
    path.write_text(json.dumps({"data": entries}))
    return path


@pytest.fixture
def engine(settings: Settings) -> Iterator[Engine]:
    opened = open_engine(settings)
    yield opened
    opened.close()


def chosen(data: Path, **changes: object) -> QualityBenchSettings:
    usual = {"questions": 2, "prompt_tokens": 1200, "codecs": (F32,), "answer_tokens": 5, "neighbours": 3}
    return QualityBenchSettings((data,), **{**usual, **changes})  # type: ignore[arg-type]


def by_label(rows: Sequence[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {f"{row['name']} {row['select']} {row['ratio']:g} {row['codec']}": row for row in rows}


def test_a_whole_run(settings: Settings, data: Path, tmp_path: Path) -> None:
    bench = chosen(data, ratios=(0.0, 0.3, 1.0), answers=1, dump=tmp_path / "dump", plots=tmp_path / "plots")
    told = run_quality_bench(settings, bench).as_json()
    rows = by_label(told["rows"])
    assert len(rows) == 3 + 3 * 3 + 3 * 3
    for row in told["rows"]:
        assert row.keys() >= ROW | {name + end for name in METRICS for end in ("", "_low", "_high")}
        assert (row["n"], row["n_answered"], row["n_gold"]) == (2, 1, 1)
        assert row["kl_low"] <= row["kl"] <= row["kl_high"]
        assert row["ttft_ms"] > 0
    full, reuse = rows["full None 1 None"], rows["reuse None 0 f32"]
    assert (full["kl"], full["top1"], full["kl_closed"], full["rouge1"], full["rouge_l"]) == (0, 1, 1, 1, 1)
    assert reuse["kl"] > 1e-4  # the tiny model does look at other chunks
    assert (reuse["kl_closed"], reuse["tokens_recomputed"]) == (0, 0)
    for label, row in rows.items():
        if row["ratio"] == 1.0:
            assert row["kl"] < 1e-6, label
            assert row["kl_closed"] > 0.99, label
    near = rows["near None 0 f32"]
    assert near["kl"] != reuse["kl"]
    for select in ("paper", "last", "spread"):
        assert rows[f"fusion {select} 0 f32"]["kl"] == pytest.approx(near["kl"], abs=1e-6)
    for label in ("epic None 0.3 f32", "craft None 0.3 f32", "fusion spread 0.3 f32"):
        assert 0 < rows[label]["tokens_recomputed"] < rows["epic None 1 f32"]["tokens_recomputed"]
    assert told["fingerprint"]
    assert (told["chooser"], told["passages"], told["tier"]) == ("embedding", 6, "pageable")
    check_dump(tmp_path / "dump", told)
    assert {file.name for file in (tmp_path / "plots").iterdir()} == {"quality-ratio.svg", "quality-ttft.svg"}


def check_dump(folder: Path, told: dict[str, Any]) -> None:
    assert json.loads((folder / "result.json").read_text()) == told
    questions = json.loads((folder / "questions.json").read_text())
    assert len(questions) == 2
    assert all(question["token_ids"] and question["chunk_spans"] for question in questions)
    kl = [question["methods"]["reuse f32"]["kl"] for question in questions]
    reuse = by_label(told["rows"])["reuse None 0 f32"]
    assert reuse["kl"] == pytest.approx(sum(sum(one) / len(one) for one in kl) / 2)
    with np.load(folder / "logits-1.npz") as logits:
        assert set(logits) == set(questions[1]["methods"])
        assert logits["full"].dtype == np.float32
        assert not np.array_equal(logits["full"], logits["reuse f32"])


def quality_of(told: dict[str, Any]) -> dict[str, tuple[object, ...]]:
    return {
        label: tuple(row[name] for name in METRICS if name != "ttft_ms")
        for label, row in by_label(told["rows"]).items()
    }


def test_the_same_again_from_cold_files_and_in_codecs(settings: Settings, data: Path) -> None:
    """Where blocks lie changes no number; a coarser codec does; the folder of the files is gone afterwards."""
    bench = chosen(data, strategies=("fusion",), selects=("spread",), codecs=(F32, INT8), answers=0)
    warm = run_quality_bench(settings, bench).as_json()
    cold = run_quality_bench(settings, replace(bench, cold=True)).as_json()
    assert quality_of(warm) == quality_of(cold)
    assert (warm["tier"], cold["tier"]) == ("pageable", "disk")
    rows = by_label(warm["rows"])
    assert {row["codec"] for row in warm["rows"]} == {None, "f32", "int8"}
    assert rows["reuse None 0 int8"]["kl"] != rows["reuse None 0 f32"]["kl"]
    assert rows["reuse None 0 int8"]["kl_closed"] == 0
    assert rows["full None 1 None"]["rouge1"] is None  # nobody was asked for an answer
    assert not list(settings.home.glob("bench-*"))


def test_without_neighbours_fusion_takes_plain_blocks(settings: Settings, data: Path) -> None:
    bench = chosen(data, chooser="none", selects=("last",), ratios=(0.0,), answers=0)
    rows = by_label(run_quality_bench(settings, bench).as_json()["rows"])
    assert {label.split()[0] for label in rows} == {"full", "reuse", "blend", "epic", "fusion"}
    assert rows["fusion last 0 f32"]["kl"] == pytest.approx(rows["reuse None 0 f32"]["kl"], abs=1e-6)


def prompts_of(engine: Engine, data: Path, count: int = 1) -> list[Prompt]:
    asked = read_questions([data], count, engine.template.token_starts, 128)
    return [prompt_of(engine.template, one, 1200).prompt for one in asked]


def lab_of(engine: Engine, data: Path, chooser: str, exact_first: bool = True, most_bytes: int = 1 << 30) -> Lab:
    documents = read_corpus([data], engine.template.token_starts, 128)
    passages = embed_passages(documents, (), engine.template, engine.embedding, no_progress)
    neighbours = Neighbours(passages, chooser, 3, 4096)
    return Lab(engine, ChunkBlocks(engine, most_bytes), neighbours, MemoryShelf(), 4, exact_first)


def kl_of(measured: Measured) -> dict[str, float]:
    return {method.label: one.divergence.mean_kl for method, one in measured.outcomes.items()}


def test_the_order_of_methods_and_forgotten_blocks_change_nothing(engine: Engine, data: Path) -> None:
    prompt = prompts_of(engine, data)[0]
    methods = chosen(data, selects=("spread",)).methods()
    there = lab_of(engine, data, "embedding").ask(prompt, methods, answer=False)
    back = lab_of(engine, data, "embedding", most_bytes=1).ask(prompt, methods[::-1], answer=False, turn=2)
    assert kl_of(there) == kl_of(back)


def test_the_first_chunk_is_exact(engine: Engine, data: Path) -> None:
    """A prompt of one chunk: its block behind the head is what `full` computes, the one behind neighbours is not."""
    (prompt,) = prompts_of(engine, data)
    alone = Prompt(prompt.head, prompt.chunks[:1], prompt.tail, prompt.question_span)
    methods = (Method(FULL, 1.0, None), Method(REUSE, 0.0, F32), Method(NEAR, 0.0, F32, near=True))
    exact = kl_of(lab_of(engine, data, "embedding").ask(alone, methods, answer=False))
    assert max(exact.values()) < 1e-6
    near = kl_of(lab_of(engine, data, "embedding", exact_first=False).ask(alone, methods, answer=False))
    assert near["reuse f32"] < 1e-6
    assert near["near f32"] > 1e-6


def test_neighbours_do_not_depend_on_the_question_but_the_oracle_does(engine: Engine, data: Path) -> None:
    first, second = prompts_of(engine, data, 2)
    shared = {ids.tobytes() for ids in first.chunks} & {ids.tobytes() for ids in second.chunks}
    assert len(shared) >= 4

    def neighbours(chooser: str) -> dict[bytes, list[list[int]]]:
        lab = lab_of(engine, data, chooser)
        return {
            key: [
                [int(ids.sum()) for ids in lab.neighbours_of(prompt, at)]
                for prompt in (first, second)
                for at, ids in enumerate(prompt.chunks)
                if ids.tobytes() == key
            ]
            for key in shared
        }

    assert all(one == other and len(one) == 3 for one, other in neighbours("embedding").values())
    assert any(one != other for one, other in neighbours("prompt").values())


def test_neighbours_by_document_fit_the_budget(engine: Engine) -> None:
    documents = [
        CutDocument("A", ("one cat", "two dogs", "three hens")),
        CutDocument("B", ("one cat sat", "sat " * 99)),
    ]
    template = engine.template
    passages = embed_passages(documents, (), template, engine.embedding, no_progress)
    middle, beside = passages.ids[1], {passages.ids[0].tobytes(), passages.ids[2].tobytes()}
    found = Neighbours(passages, "document", 2, 4096).of(middle, (), 4096)
    assert {ids.tobytes() for ids in found} == beside
    best = [float((passages.windows[:1] @ passages.windows[a:b].T).max()) for a, b in pairwise(passages.begins)]
    assert passages.similar(0) == sorted((1, 2, 3, 4), key=lambda other: -best[other])
    nearest_last = Neighbours(passages, "embedding", 2, 4096).of(passages.ids[0], (), 4096)
    assert [ids.tobytes() for ids in nearest_last[::-1]] == [passages.ids[n].tobytes() for n in passages.similar(0)[:2]]
    assert len(passages.windows) > len(passages.ids)  # one has several windows, and its best counts
    assert Neighbours(passages, "embedding", 4, 4096).of(passages.ids[0], (), len(passages.ids[3])) != ()
    assert Neighbours(passages, "embedding", 4, 5).of(middle, (), 4096) == ()
    assert Neighbours(passages, "embedding", 4, 4096).of(middle[:3], (), 4096) == ()
    few = embed_passages(documents, [passages.ids[4]], template, engine.embedding, no_progress, most=2)
    assert len(few.ids) == 2
    assert few.of_documents == 5
    assert any(np.array_equal(ids, passages.ids[4]) for ids in few.ids)


def test_answers_against_the_data() -> None:
    assert exact_match("The  Danube.", ("danube", "Rhine"))
    assert not exact_match("Danube river", ("danube",))
    assert contained("It is the river Danube, they say.", ("river danube",))
    assert not contained("Danubes", ("danube",))
    assert f1("the river Danube", ("river", "river Danube")) == pytest.approx(0.8)


def test_intervals_of_shares() -> None:
    found = combined_interval([[1.0, 2.0, 3.0], [2.0, 4.0, 6.0]], lambda a, b: 1 - a / b)
    assert found is not None
    assert (found.mean, found.low, found.high) == (0.5, 0.5, 0.5)
    assert combined_interval([[1.0], [0.0]], lambda a, b: a / b) is None
    assert mean_interval([1.0, 3.0]).mean == 2
    unequal: tuple[list[list[float]], ...] = ([], [[]], [[1.0], [1.0, 2.0]])
    for wrong in unequal:
        with pytest.raises(ValueError, match="no values"):
            combined_interval(wrong, lambda a: a)


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"data": ()}, "--data"),
        ({"questions": 0}, "at least 1"),
        ({"answers": -1}, "at least 0"),
        ({"ratios": (1.5,)}, "0 to 1"),
        ({"ratios": (float("nan"),)}, "0 to 1"),
        ({"ratios": ()}, "at least one"),
        ({"strategies": ("magic",)}, "'magic' is unknown"),
        ({"selects": ("first",)}, "'first' is unknown"),
        ({"codecs": (CodecPair("int99", "int8"),)}, "'int99' is unknown"),
        ({"chooser": "random"}, "'random' is unknown"),
        ({"chooser": "none", "strategies": ("craft",)}, "craft needs"),
        ({"plots": Path("/dev/null/x")}, "--plots"),
        ({"dump": Path("/dev/null/x")}, "--dump"),
    ],
)
def test_settings_are_refused(changes: dict[str, object], line: str) -> None:
    with pytest.raises(BenchRefused, match=line):
        QualityBenchSettings(**{"data": (Path("x"),), **changes})  # type: ignore[arg-type]


def test_the_command(cli: Cli, data: Path) -> None:
    options = ("--data", data, "--questions", 1, "--neighbours", 2, "--answers", 0, "--prompt-tokens", 1200)
    ran = cli("bench", "quality", *options, "--strategies", "epic", "--ratios", "0.1,0.2", "--json")
    assert ran.code == 0, ran.err
    assert [(row["name"], row["ratio"]) for row in ran.json["rows"]] == [
        ("full", 1.0),
        ("reuse", 0.0),
        ("near", 0.0),
        ("epic", 0.1),
        ("epic", 0.2),
    ]
    assert "fusion last 0.15" in cli("bench", "quality", *options, "--strategies", "fusion", "--select", "last").out
    for wrong, line in (
        (("--ratios", "2"), "0 to 1"),
        (("--ratios", "much"), "shares"),
        (("--strategies", "magic"), "magic"),
        (("--select", "first"), "first"),
        (("--codecs", "int99"), "int99"),
        (("--chooser", "random"), "random"),
        (("--prompt-tokens", 5), "no room for a chunk"),
    ):
        refused = cli("bench", "quality", "--data", data, *wrong)
        assert refused.code != 0
        assert len([text for text in refused.err.splitlines() if line in text]) == 1
