"""Reading questions and documents for benches: public data sets, plain JSONL, plain text. Sniffed by content."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from appliance.benches.base import BenchRefused

_TEXT_SUFFIXES = frozenset({".txt", ".md", ".markdown"})
_KNOWN = (
    "SQuAD or XQuAD JSON, MuSiQue or HotpotQA JSON, JSONL with question, answers and ctxs or documents, .txt, .md, "
    "or a folder of these texts"
)


@dataclass(frozen=True)
class BenchDocument:
    """A passage; `title` may be empty."""

    title: str
    text: str


@dataclass(frozen=True)
class BenchQuestion:
    """A question. `gold` are indices into the set's documents that answer it; empty where the data do not say."""

    text: str
    answers: tuple[str, ...]
    gold: tuple[int, ...]
    context: tuple[int, ...]
    """Indices of the documents that the data set gives with this question (gold ones and distractors)."""


@dataclass(frozen=True)
class QuestionSet:
    """Documents, each once, and questions about them. `name` is the file's name without its ending."""

    name: str
    documents: tuple[BenchDocument, ...]
    questions: tuple[BenchQuestion, ...]


class _Wrong(Exception):
    """The content is not in the shape it seemed to be; carries where."""


class _Collector:
    """Gathers documents once each, and questions by index."""

    def __init__(self) -> None:
        self.documents: dict[BenchDocument, int] = {}
        self.questions: list[BenchQuestion] = []

    def document(self, title: object, text: object) -> int:
        if not isinstance(title, str) or not isinstance(text, str):
            raise _Wrong("a document whose title or text is not a string")
        # JSON can carry half a character (a lone surrogate), which no file or database takes.
        title, text = (part.encode("utf-8", "replace").decode("utf-8") for part in (title, text))
        return self.documents.setdefault(BenchDocument(title, text), len(self.documents))

    def question(self, text: object, answers: object, gold: Iterable[int], context: Iterable[int]) -> None:
        listed = [answers] if isinstance(answers, str) else answers
        if not isinstance(text, str) or not isinstance(listed, list) or not all(isinstance(a, str) for a in listed):
            raise _Wrong("a question without text, or whose answers are not strings")
        unique = tuple(dict.fromkeys(listed)), tuple(dict.fromkeys(gold)), tuple(dict.fromkeys(context))
        self.questions.append(BenchQuestion(text, *unique))


def read_question_set(path: Path) -> QuestionSet:
    """Read one file or folder. Raises BenchRefused with one line that names it, and what would be read."""
    collector = _Collector()
    try:
        if path.is_dir():
            for file in sorted(path.rglob("*")):
                if file.is_file() and file.suffix.lower() in _TEXT_SUFFIXES:
                    _read_plain(file.stem, file.read_text(encoding="utf-8"), collector)
        else:
            _read_file(path, path.read_text(encoding="utf-8"), collector)
    except OSError as error:
        raise BenchRefused(f"{path} cannot be read ({error.strerror}): name another file") from error
    except UnicodeDecodeError as error:
        raise BenchRefused(f"{path} is not UTF-8 text: expected {_KNOWN}") from error
    except _Wrong as error:
        raise BenchRefused(f"{path} holds {error}: expected {_KNOWN}") from error
    if not collector.documents:
        raise BenchRefused(f"{path} holds no documents: expected {_KNOWN}")
    return QuestionSet(path.stem, tuple(collector.documents), tuple(collector.questions))


def _read_file(path: Path, text: str, collector: _Collector) -> None:
    content = _parse(text)
    plain = path.suffix.lower() in _TEXT_SUFFIXES
    try:
        if isinstance(content, dict) and isinstance(content.get("data"), list):
            _read_squad(content["data"], collector)
        elif isinstance(content, list) and content and all(isinstance(entry, dict) for entry in content):
            for entry in content:
                _read_entry(entry, collector)
        elif not plain:
            raise _Wrong("something else")
        else:
            _read_plain(path.stem, text, collector)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise _Wrong(f"an entry that is not complete ({type(error).__name__}: {error})") from error


def _parse(text: str) -> Any:
    """A JSON value; of JSONL the list of its lines; None of anything else."""
    if text[:1] not in ("{", "["):
        return None
    try:
        content = json.loads(text)
    except (ValueError, RecursionError):
        try:
            return [json.loads(line) for line in text.splitlines() if line.strip()]
        except (ValueError, RecursionError):
            return None
    return [content] if isinstance(content, dict) and "data" not in content else content


def _read_squad(articles: Sequence[Any], collector: _Collector) -> None:
    for article in articles:
        title = str(article.get("title", "")).replace("_", " ")
        for paragraph in article["paragraphs"]:
            index = collector.document(title, paragraph["context"])
            for entry in paragraph["qas"]:
                answers = [answer["text"] for answer in entry["answers"]]
                collector.question(entry["question"], answers, [index], [index])


def _read_entry(entry: dict[str, Any], collector: _Collector) -> None:
    if "supporting_facts" in entry:
        _read_hotpot(entry, collector)
        return
    passages = entry["ctxs"] if "ctxs" in entry else entry["documents"]
    indices = [collector.document(passage.get("title") or "", passage["text"]) for passage in passages]
    marked = [
        index
        for index, passage in zip(indices, passages, strict=True)
        if passage.get("isgold") is True or passage.get("gold") is True
    ]
    # A question that comes with a single document is about that document; of several none is picked by guessing.
    gold = marked or (indices if len(indices) == 1 else [])
    collector.question(entry["question"], entry["answers"], gold, indices)


def _read_hotpot(entry: dict[str, Any], collector: _Collector) -> None:
    supporting = {title for title, _ in entry["supporting_facts"]}
    indices: list[int] = []
    gold: list[int] = []
    for title, sentences in entry["context"]:
        index = collector.document(title, "".join(sentences).strip())
        indices.append(index)
        if title in supporting:
            gold.append(index)
    collector.question(entry["question"], entry["answer"], gold, indices)


def _read_plain(title: str, text: str, collector: _Collector) -> None:
    if text.strip():
        collector.document(title.replace("_", " ").replace("-", " "), text)
