"""The prompt: head, chunks, tail (DESIGN.md §3), tokenised apart: a chunk's ids never depend on its neighbours."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from tokenizers import Tokenizer

from models.errors import ModelRefused

SYSTEM_TEXT = "You are a helpful assistant. Use the context to answer the question."
CHUNK_TEMPLATE = "Document: {title}\n{text}\n\n"
_CHUNKS_MARK, _QUESTION_MARK = "\ue000chunks\ue000", "\ue000question\ue000"
_USER_TEXT = f"Context:\n{_CHUNKS_MARK}Question: {_QUESTION_MARK}\nAnswer:"
# Added tokens that look like these are control tokens, also where the tokenizer does not call them special.
_CONTROL = re.compile(r"[<\[].+[>\]]", re.DOTALL)
# Some templates print today's date into the head; then all stored KV would be another model's tomorrow.
_FIXED_DATE = "{%- macro strftime_now(format) -%}26 Jul 2024{%- endmacro -%}"
_PLAIN_TEXT = f"{SYSTEM_TEXT}\n\n{_USER_TEXT}"


@dataclass(frozen=True)
class Prompt:
    """Token ids of one question's prompt. `chunks` are in prompt order: the best one last, next to the question.

    `question_span`: where in the tail the question's own words stand; None: the whole tail.
    """

    head: np.ndarray
    chunks: tuple[np.ndarray, ...]
    tail: np.ndarray
    question_span: tuple[int, int] | None = None

    @property
    def question(self) -> np.ndarray:
        """The ids of the question's own words, int32 `[tokens]`, never empty."""
        begin, end = self.question_span or (0, len(self.tail))
        return self.tail[begin:end]

    @property
    def tokens(self) -> int:
        return len(self.head) + sum(len(chunk) for chunk in self.chunks) + len(self.tail)

    def ids(self) -> np.ndarray:
        """All ids in order, int32 `[tokens]`; every strategy, `full` too, uses these."""
        return np.concatenate([self.head, *self.chunks, self.tail])


class PromptTemplate:
    """A model's chat template, split around markers. Raises ModelRefused where it cannot be split."""

    def __init__(self, tokenizer: Any, name: str) -> None:
        rendered = _render(tokenizer, name)
        if rendered.count(_CHUNKS_MARK) != 1 or rendered.count(_QUESTION_MARK) != 1:
            raise ModelRefused(f"{name}: its chat template changes or repeats the user's text and cannot be split")
        head, rest = rendered.split(_CHUNKS_MARK)
        before, after = rest.split(_QUESTION_MARK)
        self._marked = Tokenizer.from_str(tokenizer.backend_tokenizer.to_str())
        self._plain = text_tokenizer(tokenizer.backend_tokenizer)
        self.head = np.asarray(_with_bos(self._encode(self._marked, head), tokenizer), dtype=np.int32)
        # The blank before the question belongs to its first word.
        self._before = self._encode(self._marked, before.rstrip(" "))
        self._after = self._encode(self._marked, after)

    def chunk(self, title: str, text: str) -> np.ndarray:
        """Ids of a chunk, int32 `[tokens]`: its title, never its rank, so that the ids are the same in every prompt."""
        return np.asarray(self._encode(self._plain, CHUNK_TEMPLATE.format(title=title, text=text)), dtype=np.int32)

    def tail(self, question: str) -> np.ndarray:
        """Ids of everything after the chunks, int32 `[tokens]`."""
        return self.prompt((), question).tail

    def prompt(self, chunks: Sequence[np.ndarray], question: str) -> Prompt:
        """The prompt of a question over chunks given best first."""
        words, before = self._encode(self._plain, f" {question}"), len(self._before)
        tail = np.asarray([*self._before, *words, *self._after], dtype=np.int32)
        return Prompt(self.head, tuple(reversed(chunks)), tail, (before, before + len(words)) if words else None)

    def token_starts(self, text: str) -> list[int]:
        """The character offset at which each token of a text begins, for cutting it into chunks."""
        return starts_of(self._plain, text)

    @staticmethod
    def _encode(tokenizer: Tokenizer, text: str) -> list[int]:
        return list(tokenizer.encode(text, add_special_tokens=False).ids)


def starts_of(tokenizer: Tokenizer, text: str) -> list[int]:
    """The character offset at which each token of a text begins."""
    return [int(start) for start, _ in tokenizer.encode(text, add_special_tokens=False).offsets]


def text_tokenizer(tokenizer: Tokenizer) -> Tokenizer:
    """A tokenizer that reads control tokens as text: no document or question can speak as the system.

    Qwen's `<think>` and `<tool_call>` are added tokens that are not special, so they are made special first.
    """
    description = json.loads(tokenizer.to_str())
    for added in description["added_tokens"]:
        added["special"] = added["special"] or bool(_CONTROL.fullmatch(added["content"]))
    plain = Tokenizer.from_str(json.dumps(description))
    plain.encode_special_tokens = True
    return plain


def _render(tokenizer: Any, name: str) -> str:
    """The rendered conversation; templates without a system role get its text at the top of the user's turn."""
    if not tokenizer.chat_template:
        return _PLAIN_TEXT
    spoken = [{"role": "system", "content": SYSTEM_TEXT}, {"role": "user", "content": _USER_TEXT}]
    for messages in (spoken, [{"role": "user", "content": _PLAIN_TEXT}]):
        try:
            text = tokenizer.apply_chat_template(
                messages,
                chat_template=_FIXED_DATE + tokenizer.get_chat_template(),
                tokenize=False,
                add_generation_prompt=True,
            )
        except Exception as error:  # noqa: BLE001 - a template is a program and may raise anything; the next form is tried
            reason = " ".join(str(error).split())[:200]
            continue
        if all(message["content"] in text for message in messages):
            return str(text)
        reason = "it drops or changes the text it is given"
    raise ModelRefused(f"{name}: its chat template cannot be used ({reason})")


def _with_bos(head: list[int], tokenizer: Any) -> list[int]:
    """Put BOS first where the tokenizer would, unless the template already did."""
    bos = tokenizer.bos_token_id
    plain = tokenizer("a")["input_ids"]
    if bos is not None and plain and plain[0] == bos and head[:1] != [bos]:
        return [int(bos), *head]
    return head
