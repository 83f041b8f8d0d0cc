"""Questions with their passages: whose they are, their order, the budget; the same every time."""

import json
import re
from pathlib import Path

import pytest

from appliance.benches.base import BenchRefused
from appliance.benches.quality_data import (
    LONGEST_PASSAGE_TOKENS,
    Passage,
    QualityQuestion,
    prompt_of,
    read_questions,
)
from appliance.benches.sentence_questions import PASSAGES, CutDocument, sentence_questions
from models.prompt import PromptTemplate
from tests.appliance.fixtures import write_samples
from tests.models.tiny import tiny_tokenizer


def words(text: str) -> list[int]:
    """A token a word."""
    return [found.start() for found in re.finditer(r"\S+", text)]


@pytest.fixture(scope="module")
def template() -> PromptTemplate:
    return PromptTemplate(tiny_tokenizer(), "tiny")


@pytest.fixture
def squad(tmp_path: Path) -> Path:
    """Three articles of four paragraphs, a question about each paragraph."""
    articles = [
        {
            "title": f"Article_{a}",
            "paragraphs": [
                {
                    "context": f"Paragraph {p} of article {a}.",
                    "qas": [{"question": f"Question {a}.{p}?", "answers": [{"text": f"answer {a}.{p}"}]}],
                }
                for p in range(4)
            ],
        }
        for a in range(3)
    ]
    path = tmp_path / "squad.json"
    path.write_text(json.dumps({"data": articles}))
    return path


def test_paragraphs_of_an_article_stand_together_shuffled(squad: Path) -> None:
    questions = read_questions([squad], 12, words, 256)
    assert len(questions) == 12
    places = set()
    for question in questions:
        article, paragraph = re.findall(r"\d", question.text)
        own = [passage for passage in question.passages if passage.title == f"Article {article}"]
        assert {passage.text for passage in own} == {f"Paragraph {p} of article {article}." for p in range(4)}
        assert len(question.passages) == PASSAGES  # one of another article fills up
        (gold,) = (passage for passage in question.passages if passage.gold)
        assert gold.text.startswith(f"Paragraph {paragraph}")
        places.add(question.passages.index(gold))
    assert len(places) > 2
    assert questions == read_questions([squad], 12, words, 256)


def test_questions_are_spread_over_sets_and_inside_them(squad: Path, tmp_path: Path) -> None:
    few = read_questions([squad], 3, words, 256)
    assert [question.text for question in few] == ["Question 0.0?", "Question 1.0?", "Question 2.0?"]
    folder = write_samples(tmp_path / "files")
    mixed = read_questions([folder, squad], 5, words, 256)
    assert [question.source for question in mixed] == ["squad", "squad", "files", "files", "files"]


def test_contexts_that_come_with_a_question_are_its_passages(tmp_path: Path) -> None:
    long = " ".join(f"Sentence {n} has exactly six words." for n in range(LONGEST_PASSAGE_TOKENS // 4))
    line = {
        "question": "who",
        "answers": ["me"],
        "ctxs": [
            {"title": "A", "text": "one"},
            {"title": "B", "text": long, "isgold": True},
            {"title": "C", "text": "x"},
        ],
    }
    path = tmp_path / "set.jsonl"
    path.write_text(json.dumps(line))
    (question,) = read_questions([path], 4, words, 256)
    pieces = [passage for passage in question.passages if passage.title == "B"]
    assert len(pieces) == 2  # too long for one block
    assert all(passage.gold and len(words(passage.text)) <= LONGEST_PASSAGE_TOKENS for passage in pieces)
    assert " ".join(passage.text for passage in pieces) == long
    assert {passage.title for passage in question.passages} == {"A", "B", "C"}
    assert question.answers == ("me",)


def test_documents_are_asked_about_their_own_sentences(tmp_path: Path) -> None:
    folder = write_samples(tmp_path / "files")
    questions = read_questions([folder], 6, words, 20)
    assert len(questions) == 6
    for question in questions:
        said = re.fullmatch(r'The documents say: "(.+) …" How does this sentence go on\?', question.text)
        assert said is not None
        last = question.passages[-1]
        assert last.gold
        assert f"{said[1]} {question.answers[0]}" in " ".join(last.text.split())
        assert 2 <= len(question.passages) <= PASSAGES
        assert len(set(question.passages)) == len(question.passages)
    assert len({question.text for question in questions}) == 6
    assert questions == read_questions([folder], 6, words, 20)


def test_every_chunk_is_asked_about_before_any_is_again() -> None:
    sentence = "In {} the {} of the hall was closed for three long weeks."
    chunks = tuple(" ".join(sentence.format(month, thing) for month in ("May", "June")) for thing in "abcd")
    documents = [CutDocument("T", chunks)]
    asked = sentence_questions(documents, 100, seed=1)
    assert len(asked) == 8
    assert len({question.chunks[-1] for question in asked[:4]}) == 4
    assert sentence_questions(documents, 3, seed=1) == asked[:3]
    assert sentence_questions(documents, 4, seed=2) != asked[:4]
    assert all(len(set(question.chunks)) == len(question.chunks) == 4 for question in asked)


def test_what_holds_no_questions_is_refused(tmp_path: Path) -> None:
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "short.txt").write_text("Too short.")
    with pytest.raises(BenchRefused, match="notes: no questions"):
        read_questions([tmp_path / "notes"], 4, words, 256)


def question_of(*lengths: int, gold: tuple[int, ...] = ()) -> QualityQuestion:
    passages = [Passage("", "x" * length, place in gold) for place, length in enumerate(lengths)]
    return QualityQuestion("Why?", ("so",), tuple(passages), "set")


def test_the_budget_keeps_what_answers_then_what_stands_nearest(template: PromptTemplate) -> None:
    around = len(template.head) + len(template.tail("Why?"))
    wrap = len(template.chunk("", ""))
    whole = prompt_of(template, question_of(10, 20, 30), 10_000)
    assert whole.kept == (0, 1, 2)
    assert [len(chunk) for chunk in whole.prompt.chunks] == [wrap + 10, wrap + 20, wrap + 30]
    two = prompt_of(template, question_of(10, 20, 30), around + 2 * wrap + 50)
    assert two.kept == (1, 2)
    gold = prompt_of(template, question_of(10, 20, 30, gold=(0,)), around + 2 * wrap + 40)
    assert gold.kept == (0, 2)
    assert gold.prompt.tokens <= around + 2 * wrap + 40
    cut = prompt_of(template, question_of(10, 20, 30, gold=(1,)), around + 5)
    assert (cut.kept, cut.prompt.tokens) == ((1,), around + 5)
    for limit, asked in ((around, question_of(10)), (10_000, question_of())):
        with pytest.raises(BenchRefused, match="no room for a chunk"):
            prompt_of(template, asked, limit)


def test_a_dump_says_where_the_chunks_stand(template: PromptTemplate) -> None:
    found = prompt_of(template, question_of(10, 20), 10_000)
    told = found.as_json()
    assert told["token_ids"] == found.prompt.ids().tolist()
    for (start, end), chunk in zip(told["chunk_spans"], found.prompt.chunks, strict=True):
        assert told["token_ids"][start:end] == chunk.tolist()
