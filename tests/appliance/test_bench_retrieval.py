"""The retrieval bench: its arithmetic, its report, its dump, its refusals."""

import json
from pathlib import Path

import pytest

from appliance.benches.base import BenchRefused, dump_json, format_table, machine_facts, median, percentile
from appliance.benches.retrieval import RetrievalBenchSettings, run_retrieval_bench
from appliance.benches.retrieval_result import score_method
from appliance.retrieval import METHODS
from tests.appliance.bench_embedding import BagOfWords

SUBJECTS = ("bees", "copper", "tunnels", "glass", "violins", "rivers", "salt", "paper")


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Eight documents of two paragraphs each, and a question about each document."""
    lines = [
        {
            "question": f"Where do {subject} come from?",
            "answers": [subject],
            "documents": [
                {
                    "title": f"About {subject}",
                    "text": f"Many {subject} come from place {number}.\n\nThe rest of the {subject} is unknown.",
                }
            ],
        }
        for number, subject in enumerate(SUBJECTS)
    ]
    path = tmp_path / "subjects.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def settings_for(file: Path, **changes: object) -> RetrievalBenchSettings:
    return RetrievalBenchSettings(**{"data": (file,), "embedding": file.parent / "no-model", **changes})  # type: ignore[arg-type]


def test_recall_and_reciprocal_rank_by_hand() -> None:
    found = [[5, 1, 2], [3, 3, 7], [9, 8, 4], []]
    gold = [[1], [3, 7], [6], [0]]
    score = score_method("both", found, gold, [1.0, 2.0, 3.0, 10.0], (1, 2, 3), 50)
    assert score.recall == {1: 0.5 / 4, 2: 1.5 / 4, 3: 2 / 4}
    assert score.mrr == pytest.approx((1 / 2 + 1) / 4)
    assert (score.median_ms, score.p95_ms) == (2.5, 10.0)
    assert score_method("both", found, gold, [1.0], (1,), 1).mrr == 1 / 4
    with pytest.raises(ValueError, match="gold"):
        score_method("both", [[1]], [[]], [1.0], (1,), 1)


def test_a_whole_run(data: Path) -> None:
    seen: list[tuple[str, int, int]] = []
    result = run_retrieval_bench(
        settings_for(data), BagOfWords(), lambda stage, done, total: seen.append((stage, done, total))
    )
    (entry,) = result.sets
    assert (entry.name, entry.documents, entry.chunks, entry.questions) == ("subjects", 8, 8, 8)
    assert [score.method for score in entry.methods] == list(METHODS)
    for score in entry.methods:
        assert score.recall == {1: 1.0, 4: 1.0, 8: 1.0}
        assert score.mrr == 1.0
        assert score.median_ms > 0
    assert seen[0] == ("subjects: embedding", 8, 8)
    assert seen[-1] == ("subjects: asking", 8, 8)
    content = json.loads(json.dumps(result.as_json()))
    assert content["sets"][0]["methods"][2]["recall"] == {"1": 1.0, "4": 1.0, "8": 1.0}
    assert content["embedding_fingerprint"] == "bag-of-words"
    assert content["machine"]["cores"] >= 1
    table = result.as_table()
    assert "recall@8" in table
    assert content["machine"]["date"] in table


def test_a_wrong_ranking_scores_less(data: Path) -> None:
    """The bench can fail: questions whose gold is another document are not found."""
    lines = [json.loads(line) for line in data.read_text().splitlines()]
    for line, other in zip(lines, [*lines[1:], lines[0]], strict=True):
        line["question"] = f"Where do {other['answers'][0]} come from?"
    data.write_text("".join(json.dumps(line) + "\n" for line in lines))
    result = run_retrieval_bench(settings_for(data), BagOfWords())
    assert all(score.recall[1] < 0.5 and score.mrr < 0.7 for score in result.sets[0].methods)


def test_documents_are_cut_as_ingest_cuts_them(data: Path) -> None:
    def starts(text: str) -> list[int]:
        return [0, *(place + 1 for place, character in enumerate(text) if character.isspace())]

    settings = settings_for(data, token_starts=starts, chunk_tokens=8, dump=data.parent / "dump")
    result = run_retrieval_bench(settings, BagOfWords())
    assert (result.sets[0].documents, result.sets[0].chunks) == (8, 16)
    assert result.sets[0].methods[0].recall[4] == 1.0
    dumped = json.loads((data.parent / "dump" / "retrieval-subjects.json").read_text())
    assert dumped["chunks"][1]["span"][0] > dumped["chunks"][0]["span"][1]
    assert dumped["chunks"][1]["document"] == dumped["chunks"][0]["document"]
    question = dumped["questions"][3]
    assert question["gold"] == [3]
    assert set(question["took_ms"]) == set(question["hits"]) == set(METHODS)
    assert json.loads((data.parent / "dump" / "retrieval.json").read_text())["settings"]["depth"] == 50


def test_fewer_questions_are_spread_over_the_set_and_search_all_documents(data: Path) -> None:
    settings = settings_for(data, questions=2, methods=("words",), dump=data.parent / "dump")
    result = run_retrieval_bench(settings, BagOfWords())
    assert (result.sets[0].documents, result.sets[0].questions) == (8, 2)
    dumped = json.loads((data.parent / "dump" / "retrieval-subjects.json").read_text())
    assert [question["gold"] for question in dumped["questions"]] == [[0], [4]]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"data": ()}, "--data"),
        ({"ks": ()}, "--k"),
        ({"ks": (0, 4)}, "--k"),
        ({"questions": 0}, "--questions"),
        ({"methods": ("magic",)}, "magic"),
        ({"methods": ()}, "vectors"),
    ],
)
def test_settings_that_cannot_be_measured(data: Path, changes: dict[str, object], words: str) -> None:
    with pytest.raises(BenchRefused, match=words):
        run_retrieval_bench(settings_for(data, **changes), BagOfWords())


def test_data_without_gold_are_refused(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("Only a text.")
    with pytest.raises(BenchRefused, match="does not say which documents answer"):
        run_retrieval_bench(settings_for(tmp_path / "text.txt"), BagOfWords())


def test_statistics_and_tables() -> None:
    assert (median([]), median([3, 1, 2]), median([1, 2, 3, 4])) == (0.0, 2, 2.5)
    values = [float(value) for value in range(1, 101)]
    assert (percentile(values, 95), percentile(values, 0), percentile(values, 100)) == (95, 1, 100)
    assert (percentile([7.0], 99), percentile([], 99)) == (7.0, 0.0)
    assert percentile(values, 99.5) == 100
    with pytest.raises(ValueError, match="percent"):
        percentile(values, 101)
    assert format_table(("name", "n"), [("a", "10"), ("long name", "9")]).splitlines() == [
        "name        n",
        "---------  --",
        "a          10",
        "long name   9",
    ]


def test_a_dump_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    assert json.loads(dump_json(tmp_path / "new" / "folder", "x", {"ü": 1}).read_text()) == {"ü": 1}
    (tmp_path / "file").write_text("")
    with pytest.raises(BenchRefused, match="--dump"):
        dump_json(tmp_path / "file", "x", {})


def test_machine_facts_are_plain_values() -> None:
    facts = machine_facts()
    assert json.loads(json.dumps(facts)) == facts
    assert facts["ram_gib"] > 0
