"""Reading data sets: every shape is known by its content, and anything else is one clear line."""

import json
from pathlib import Path

import pytest

from appliance.benches.base import BenchRefused
from appliance.benches.datasets import BenchDocument, BenchQuestion, read_question_set

SQUAD = {
    "data": [
        {
            "title": "Black_Death",
            "paragraphs": [
                {"context": "It came by sea.", "qas": [{"question": "How?", "answers": [{"text": "sea"}] * 2}]},
                {"context": "It went by land.", "qas": [{"question": "And then?", "answers": [{"text": "land"}]}]},
            ],
        }
    ]
}
NQ = [
    {"question": "who", "answers": ["me"], "ctxs": [{"title": "A", "text": "one", "isgold": True, "hasanswer": True}]},
    {
        "question": "what",
        "answers": ["it", "that"],
        "ctxs": [{"title": "B", "text": "two", "isgold": False}, {"title": "A", "text": "one", "isgold": True}],
    },
]
MUSIQUE = [{"question": "q", "answers": ["a"], "ctxs": [{"title": "", "text": "x"}, {"title": "", "text": "y"}]}]
HOTPOT = [
    {
        "question": "q",
        "answer": "a",
        "supporting_facts": [["B", 0], ["B", 1]],
        "context": [["A", ["One. ", "Two."]], ["B", ["Three.", " Four."]]],
    }
]
PLAIN = [
    {"question": "q1", "answers": ["a"], "documents": [{"title": "T", "text": "x"}]},
    {"question": "q2", "answers": [], "documents": [{"text": "x"}, {"title": "U", "text": "y", "gold": True}]},
]


def write(folder: Path, name: str, content: object, *, lines: bool = False) -> Path:
    path = folder / name
    if lines and isinstance(content, list):
        path.write_text("".join(json.dumps(entry) + "\n" for entry in content))
    else:
        path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def test_squad(tmp_path: Path) -> None:
    found = read_question_set(write(tmp_path, "set.json", SQUAD))
    assert found.name == "set"
    assert found.documents == (
        BenchDocument("Black Death", "It came by sea."),
        BenchDocument("Black Death", "It went by land."),
    )
    assert found.questions == (
        BenchQuestion("How?", ("sea",), (0,), (0,)),
        BenchQuestion("And then?", ("land",), (1,), (1,)),
    )


@pytest.mark.parametrize("lines", [True, False])
def test_natural_questions(tmp_path: Path, lines: bool) -> None:
    found = read_question_set(write(tmp_path, "nq.data", NQ, lines=lines))
    assert found.documents == (BenchDocument("A", "one"), BenchDocument("B", "two"))
    assert [(question.gold, question.context) for question in found.questions] == [((0,), (0,)), ((0,), (1, 0))]
    assert found.questions[1].answers == ("it", "that")


def test_musique_does_not_say_what_answers(tmp_path: Path) -> None:
    found = read_question_set(write(tmp_path, "m.json", MUSIQUE))
    assert found.questions == (BenchQuestion("q", ("a",), (), (0, 1)),)


def test_hotpot(tmp_path: Path) -> None:
    found = read_question_set(write(tmp_path, "h.json", HOTPOT))
    assert found.documents[0] == BenchDocument("A", "One. Two.")
    assert found.questions == (BenchQuestion("q", ("a",), (1,), (0, 1)),)


def test_plain_lines(tmp_path: Path) -> None:
    found = read_question_set(write(tmp_path, "p.jsonl", PLAIN, lines=True))
    assert [document.title for document in found.documents] == ["T", "", "U"]
    assert [question.gold for question in found.questions] == [(0,), (2,)]
    single = read_question_set(write(tmp_path, "one.jsonl", PLAIN[:1], lines=True))
    assert len(single.questions) == 1


def test_half_a_character_is_replaced(tmp_path: Path) -> None:
    line = {"question": "q", "answers": ["a"], "documents": [{"text": "x\ud800y"}]}
    assert read_question_set(write(tmp_path, "half.jsonl", [line], lines=True)).documents[0].text == "x?y"


def test_texts_and_folders(tmp_path: Path) -> None:
    write(tmp_path, "b_note.md", "[a link](x) and text")
    write(tmp_path, "a.txt", "Some text.")
    write(tmp_path, "picture.bin", "not read")
    write(tmp_path, "empty.txt", " \n")
    found = read_question_set(tmp_path)
    assert found.documents == (BenchDocument("a", "Some text."), BenchDocument("b note", "[a link](x) and text"))
    assert found.questions == ()
    assert read_question_set(tmp_path / "b_note.md").documents[0].title == "b note"
    assert read_question_set(write(tmp_path, "list.txt", "[1, 2] are numbers")).documents[0].title == "list"


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("x.json", "{"),
        ("x.json", "{}"),
        ("x.json", "[]"),
        ("x.json", "[1, 2]"),
        ("x.json", '{"data": []}'),
        ("x.json", '{"data": [{"title": "t"}]}'),
        ("x.json", '{"data": ["t"]}'),
        ("x.json", "[" * 100_000),
        ("x.jsonl", '{"question": "q", "answers": ["a"]}\n'),
        ("x.jsonl", '{"question": "q", "answers": ["a"], "documents": ["text"]}\n'),
        ("x.jsonl", '{"question": 3, "answers": ["a"], "documents": [{"text": "t"}]}\n'),
        ("x.jsonl", '{"question": "q", "answers": [3], "documents": [{"text": "t"}]}\n'),
        ("x.jsonl", '{"question": "q", "answers": ["a"], "documents": [{"text": 3}]}\n'),
        ("x.jsonl", '{"question": "q"}\nnot json\n'),
        ("x.csv", "question,answer\n"),
        ("x.txt", " \n"),
    ],
)
def test_anything_else_is_one_clear_line(tmp_path: Path, name: str, content: str) -> None:
    path = write(tmp_path, name, content)
    with pytest.raises(BenchRefused, match="expected SQuAD") as caught:
        read_question_set(path)
    assert str(caught.value).startswith(str(path))
    assert "\n" not in str(caught.value)


def test_binary_missing_and_empty_folder(tmp_path: Path) -> None:
    (tmp_path / "b.json").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(BenchRefused, match="not UTF-8"):
        read_question_set(tmp_path / "b.json")
    with pytest.raises(BenchRefused, match=r"missing\.json cannot be read"):
        read_question_set(tmp_path / "missing.json")
    (tmp_path / "folder").mkdir()
    with pytest.raises(BenchRefused, match="holds no documents"):
        read_question_set(tmp_path / "folder")
