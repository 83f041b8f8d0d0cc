"""Questions made from documents that come without any: sentences of their own text, to be completed."""

import random
import re
from collections.abc import Sequence
from dataclasses import dataclass

from appliance.chunking import TokenCounter
from appliance.sentences import split_into_units

PASSAGES = 5
"""Chunks in the prompt of such a question: the sentence's own, last, and its neighbours before it."""

_FEWEST_WORDS, _MOST_WORDS = 8, 60
_WORD = re.compile(r"\S+")


@dataclass(frozen=True)
class CutDocument:
    """A document as its chunks, in order of the text."""

    title: str
    chunks: tuple[str, ...]


@dataclass(frozen=True)
class SentenceQuestion:
    """`rest` is how the sentence goes on. `chunks`: (document, chunk) indices in prompt order, the sentence's last."""

    text: str
    rest: str
    chunks: tuple[tuple[int, int], ...]


def sentence_questions(documents: Sequence[CutDocument], count: int, seed: int) -> list[SentenceQuestion]:
    """At most `count` questions, from as many chunks as possible; the same seed gives the same ones.

    Each chunk is asked about once before any is asked about again; fewer come back where the text holds fewer
    sentences of 8 to 60 words.
    """
    chooser = random.Random(seed)  # noqa: S311 - a sample, no secret
    left = [
        (document, chunk, _sentences(text))
        for document, cut in enumerate(documents)
        for chunk, text in enumerate(cut.chunks)
    ]
    chooser.shuffle(left)
    found: list[SentenceQuestion] = []
    while left and len(found) < count:
        kept = []
        for document, chunk, sentences in left:
            if not sentences or len(found) == count:
                continue
            sentence = sentences.pop(chooser.randrange(len(sentences)))
            found.append(_question(documents, document, chunk, sentence, chooser))
            kept.append((document, chunk, sentences))
        left = kept
    return found


def _sentences(text: str) -> list[str]:
    """Sentences long enough that half of one says which is meant; headings and tables have none."""
    counter = TokenCounter([word.start() for word in _WORD.finditer(text)])
    units = split_into_units(text, 0, len(text), False, counter, _MOST_WORDS)
    spans = [" ".join(text[unit.start : unit.end].split()) for unit in units if not unit.is_heading]
    return [span for span in spans if _FEWEST_WORDS <= len(span.split()) <= _MOST_WORDS]


def _question(
    documents: Sequence[CutDocument], document: int, chunk: int, sentence: str, chooser: random.Random
) -> SentenceQuestion:
    words = sentence.split()
    first, rest = " ".join(words[: len(words) // 2]), " ".join(words[len(words) // 2 :])
    near = sorted(range(len(documents[document].chunks)), key=lambda other: (abs(other - chunk), other))
    around = [(document, other) for other in near[1:PASSAGES]]
    others = [number for number in range(len(documents)) if number != document and documents[number].chunks]
    for other in chooser.sample(others, min(len(others), PASSAGES - 1 - len(around))):
        around.append((other, chooser.randrange(len(documents[other].chunks))))
    text = f'The documents say: "{first} …" How does this sentence go on?'
    return SentenceQuestion(text, rest, (*reversed(around), (document, chunk)))
