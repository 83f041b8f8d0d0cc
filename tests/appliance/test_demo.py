"""The demo: its sample folder and questions fit each other, and running it twice reads nothing again."""

from dataclasses import replace
from pathlib import Path

import pytest

from appliance.demo import DEMO_COLLECTION, DEMO_QUESTIONS, DemoQuestion, run_demo, sample_folder
from appliance.parsing import DocumentParser
from appliance.service import Appliance
from appliance.settings import Settings

KINDS = {".txt", ".md", ".html", ".pdf", ".docx"}


@pytest.fixture(scope="module")
def texts() -> dict[str, str]:
    """The parsed text of every sample document."""
    with DocumentParser() as parser:
        return {path.name: parser.parse(path).text for path in sorted(sample_folder().iterdir())}


def test_the_sample_folder(texts: dict[str, str]) -> None:
    assert len(texts) >= 12
    assert {Path(name).suffix for name in texts} == KINDS


def test_each_fact_stands_in_exactly_one_document(texts: dict[str, str]) -> None:
    assert len(DEMO_QUESTIONS) == 5
    for question in DEMO_QUESTIONS:
        assert [name for name, text in texts.items() if question.fact in text] != []
        assert question.fact not in question.text


def test_what_a_right_answer_is() -> None:
    question = DemoQuestion("What is the rent?", "18,600")
    assert question.is_right("The rent is 18,600 euros.")
    assert question.is_right("18600")
    assert not question.is_right("The rent is 18,000 euros.")
    assert not question.is_right("18,600 " + "word " * 60)


def test_two_runs(settings: Settings, reads: list[str], texts: dict[str, str]) -> None:
    with Appliance.open(replace(settings, chunk_tokens=300)) as appliance:
        first = run_demo(appliance, lambda _: None)
        read = len(reads)
        second = run_demo(appliance, lambda _: None)
        assert len(appliance.documents(DEMO_COLLECTION)) == len(texts)
        assert appliance.collections() == [DEMO_COLLECTION]
    assert not first.ingest.failed
    assert len(reads) == read == first.ingest.chunks
    assert second.ingest.chunks == 0
    assert [answer.answer_reuse for answer in first.answers] == [answer.answer_reuse for answer in second.answers]
    assert [answer.question for answer in first.answers] == [question.text for question in DEMO_QUESTIONS]
    found = first.as_json()
    assert found.keys() == {"ingest", "answers", "right_full", "right_reuse"}
    assert all(answer["ratio"] == answer["full_ms"] / answer["reuse_ms"] for answer in found["answers"])
    assert all(len(line) <= 140 for line in first.as_table().splitlines())
