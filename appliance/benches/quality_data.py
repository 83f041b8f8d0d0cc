"""Questions with the passages of their prompts, for benches of quality: public sets, or any documents."""

import random
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from appliance.benches.base import BenchRefused
from appliance.benches.datasets import BenchQuestion, QuestionSet, read_question_set
from appliance.benches.sentence_questions import PASSAGES, CutDocument, sentence_questions
from appliance.chunking import split_into_chunks
from appliance.errors import DocumentRejected
from appliance.parsing import DocumentParser, ParsedDocument, find_documents
from models.prompt import Prompt, PromptTemplate

SEED = 7
# No block of the product is longer (DESIGN.md §3); a longer passage of a set becomes several.
LONGEST_PASSAGE_TOKENS = 512

TokenStarts = Callable[[str], Sequence[int]]


@dataclass(frozen=True)
class Passage:
    """One chunk of a prompt; `gold` where the data say that it answers."""

    title: str
    text: str
    gold: bool


@dataclass(frozen=True)
class QualityQuestion:
    """`passages` are in prompt order: the last one stands next to the question. `answers` may be empty."""

    text: str
    answers: tuple[str, ...]
    passages: tuple[Passage, ...]
    source: str


@dataclass(frozen=True)
class QualityPrompt:
    """A question's prompt within a budget; `kept` are the indices of its passages, in prompt order."""

    question: QualityQuestion
    prompt: Prompt
    kept: tuple[int, ...]

    def as_json(self) -> dict[str, Any]:
        """What a dump tells of it: ids, spans of the chunks `[start, end)`, titles."""
        starts = len(self.prompt.head) + np.cumsum([0, *(len(chunk) for chunk in self.prompt.chunks)])
        return {
            "question": self.question.text,
            "answers": list(self.question.answers),
            "data": self.question.source,
            "titles": [self.question.passages[index].title for index in self.kept],
            "token_ids": self.prompt.ids().tolist(),
            "chunk_spans": [[int(a), int(b)] for a, b in pairwise(starts)],
        }


def read_questions(
    paths: Sequence[Path], count: int, token_starts: TokenStarts, chunk_tokens: int
) -> list[QualityQuestion]:
    """`count` questions, as many from each question set as from all documents together, evenly spread.

    A folder, and a file that could be ingested, is a document. Raises BenchRefused naming what holds no questions.
    """
    sets = [path for path in paths if not (path.is_dir() or find_documents([path]).accepted)]
    documents = [path for path in paths if path not in sets]
    parts = len(sets) + bool(documents)
    shares = [count * (part + 1) // parts - count * part // parts for part in range(parts)]
    found: list[QualityQuestion] = []
    for path, share in zip(sets, shares, strict=False):
        found += questions_of_set(read_question_set(path), share, token_starts)
    if documents:
        found += questions_of_documents(
            read_documents(documents, token_starts, chunk_tokens),
            shares[-1],
            ", ".join(path.name for path in documents),
        )
    if not found:
        raise BenchRefused(f"{', '.join(path.name for path in paths)}: no questions to ask: name other data")
    return found


def read_corpus(paths: Sequence[Path], token_starts: TokenStarts, chunk_tokens: int) -> list[CutDocument]:
    """Every passage of these question sets and documents, cut as `read_questions` cuts them.

    Paragraphs of the same title are one document, in the order of the data. Raises BenchRefused.
    """
    sets = [path for path in paths if not (path.is_dir() or find_documents([path]).accepted)]
    documents = read_documents([path for path in paths if path not in sets], token_starts, chunk_tokens)
    for path in sets:
        titled: dict[str, list[str]] = defaultdict(list)
        for number, entry in enumerate(read_question_set(path).documents):
            titled[entry.title or f"\0{number}"] += _pieces(entry.text, token_starts)
        documents += [CutDocument(title.partition("\0")[0], tuple(pieces)) for title, pieces in titled.items()]
    return documents


def read_documents(paths: Sequence[Path], token_starts: TokenStarts, chunk_tokens: int) -> list[CutDocument]:
    """Files and folders, parsed and cut as ingest does it; files that cannot be read are left out."""
    files = find_documents(paths).accepted
    documents = []
    with DocumentParser() as parser:
        for file in files:
            try:
                parsed = parser.parse(file)
            except DocumentRejected:
                continue
            spans = split_into_chunks(parsed, token_starts(parsed.text), chunk_tokens)
            documents.append(CutDocument(parsed.title, tuple(parsed.text[span.start : span.end] for span in spans)))
    return documents


def questions_of_documents(documents: Sequence[CutDocument], count: int, source: str) -> list[QualityQuestion]:
    """Sentences of the documents, to be completed (see sentence_questions.py)."""
    return [
        QualityQuestion(
            asked.text,
            (asked.rest,),
            tuple(
                Passage(documents[place[0]].title, documents[place[0]].chunks[place[1]], place == asked.chunks[-1])
                for place in asked.chunks
            ),
            source,
        )
        for asked in sentence_questions(documents, count, SEED)
    ]


def questions_of_set(found: QuestionSet, count: int, token_starts: TokenStarts) -> list[QualityQuestion]:
    """Questions evenly spread over a set, each with the passages that come with it, in an order fixed by the seed.

    A question that comes with a single passage (SQuAD, XQuAD, NQ) gets those of the same title, which are the
    paragraphs of its article, and where these are fewer than five, passages of other titles.
    """
    if not found.questions:
        documents = [CutDocument(entry.title, _pieces(entry.text, token_starts)) for entry in found.documents]
        return questions_of_documents(documents, count, found.name)
    titled: dict[str, list[int]] = defaultdict(list)
    for index, document in enumerate(found.documents):
        titled[document.title].append(index)
    step = len(found.questions) / min(count, len(found.questions)) if count else 0
    chosen = [found.questions[int(number * step)] for number in range(min(count, len(found.questions)))]
    return [_with_passages(found, question, titled, token_starts) for question in chosen]


def _with_passages(
    found: QuestionSet, question: BenchQuestion, titled: dict[str, list[int]], token_starts: TokenStarts
) -> QualityQuestion:
    chooser = random.Random(f"{SEED} {question.text}")  # noqa: S311 - a shuffle, no secret
    context = list(question.context)
    if len(context) == 1:
        title = found.documents[context[0]].title
        siblings = titled[title] if title else context
        # An article of a large set can have more paragraphs than a prompt should.
        context += [index for index in siblings if index not in context][: 2 * PASSAGES - 1]
        strangers = [index for index in range(len(found.documents)) if index not in context]
        context += chooser.sample(strangers, min(len(strangers), max(0, PASSAGES - len(context))))
    chooser.shuffle(context)
    passages = [
        Passage(found.documents[index].title, text, index in question.gold)
        for index in context
        for text in _pieces(found.documents[index].text, token_starts)
    ]
    return QualityQuestion(question.text, question.answers, tuple(passages), found.name)


def _pieces(text: str, token_starts: TokenStarts) -> tuple[str, ...]:
    """The text whole where one block could hold it, else cut as documents are."""
    starts = token_starts(text)
    if len(starts) <= LONGEST_PASSAGE_TOKENS:
        return (text,)
    spans = split_into_chunks(ParsedDocument("", "txt", text), starts, LONGEST_PASSAGE_TOKENS)
    return tuple(text[span.start : span.end] for span in spans)


def prompt_of(template: PromptTemplate, question: QualityQuestion, limit_tokens: int) -> QualityPrompt:
    """The prompt of at most `limit_tokens`: passages that answer first, then those nearest to the question.

    What does not fit is left out; where nothing fits, the first of them is cut. Raises BenchRefused where the budget
    holds no chunk at all.
    """
    tail = template.tail(question.text)
    room = limit_tokens - len(template.head) - len(tail)
    ids = [template.chunk(passage.title, passage.text) for passage in question.passages]
    order = sorted(range(len(ids)), key=lambda index: (not question.passages[index].gold, -index))
    if room < 1 or not order:
        raise BenchRefused(f"a prompt of {limit_tokens} tokens has no room for a chunk: name more with --prompt-tokens")
    kept: list[int] = []
    left = room
    for index in order:
        if len(ids[index]) <= left:
            kept.append(index)
            left -= len(ids[index])
    if not kept:
        kept, ids[order[0]] = [order[0]], ids[order[0]][:room]
    kept.sort()
    prompt = template.prompt([ids[index] for index in reversed(kept)], question.text)
    return QualityPrompt(question, prompt, tuple(kept))
