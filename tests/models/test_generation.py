"""Decoding: the tokens transformers would choose, stopping at once, and text that never shows half a character."""

import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from models.errors import PromptTooLong
from models.executor import ComputedSource, Executor
from models.forward import run_rows
from models.generation import TextStream, generate, repeats
from models.loading import LanguageModel
from models.placing import choose_placers
from models.prompt import Prompt
from models.reader import ChunkReader
from models.strategies import find_strategy
from tests.models.conftest import load, sample_prompt
from tests.models.tiny import save_tiny_model, tiny_tokenizer

NEW_TOKENS = 40


@pytest.fixture(scope="module", params=["llama", "qwen3"])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny_model(tmp_path_factory.mktemp("generation") / "model", request.param)


@pytest.fixture(scope="module")
def model(folder: Path) -> LanguageModel:
    """Never stops alone, so that tests say when."""
    return replace(load(folder), stop_ids=frozenset())


@pytest.fixture
def started(model: LanguageModel) -> Iterator[tuple[Executor, Prompt, torch.Tensor]]:
    """An executor with a prompt read in full, and the logits after it."""
    prompt = sample_prompt(model, 2)
    reader = ChunkReader(model, prompt.head, "head", "f32")
    executor = Executor(reader, choose_placers())
    source = ComputedSource(reader, prompt.chunks)
    yield (
        executor,
        prompt,
        executor.execute(prompt, find_strategy("full").plan(prompt), source, NEW_TOKENS).logits,
    )
    executor.close()


def reference(folder: Path, prompt: Prompt) -> list[int]:
    """What transformers' own greedy generate says."""
    model: Any = AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager", dtype=torch.float32)
    ids = torch.as_tensor(prompt.ids(), dtype=torch.int64)[None]
    mask = torch.ones_like(ids)
    options = {"do_sample": False, "max_new_tokens": NEW_TOKENS, "eos_token_id": None, "pad_token_id": 0}
    out: torch.Tensor = model.generate(ids, attention_mask=mask, **options)
    found: list[int] = out[0, ids.shape[1] :].tolist()
    return found


def test_greedy_equals_transformers(folder: Path, started: tuple[Executor, Prompt, torch.Tensor]) -> None:
    executor, prompt, logits = started
    expected = reference(folder, prompt)
    assert len(expected) == NEW_TOKENS
    assert len(set(expected)) > 5, "too dull a sequence to prove anything"
    found = list(generate(executor, logits, prompt.tokens, NEW_TOKENS))
    whole = next((n for n in range(1, NEW_TOKENS + 1) if repeats(expected[:n])), NEW_TOKENS + 1) - 1
    assert found == expected[:whole]
    assert whole > 12


@pytest.mark.parametrize("limit", [0, 1, 2, 7])
def test_no_more_than_asked_for(started: tuple[Executor, Prompt, torch.Tensor], limit: int) -> None:
    executor, prompt, logits = started
    found = list(generate(executor, logits, prompt.tokens, limit))
    assert len(found) == limit
    assert found == list(generate(executor, logits, prompt.tokens, 8))[:limit]


def test_the_whole_room_can_be_used(model: LanguageModel) -> None:
    """A prompt and an answer that fill the window to the last slot."""
    model = replace(model, window=512)
    prompt = sample_prompt(model, 1)
    reader = ChunkReader(model, prompt.head, "head", "f32")
    executor = Executor(reader, choose_placers())
    room = model.window - prompt.tokens
    plan = find_strategy("full").plan(prompt)
    source = ComputedSource(reader, prompt.chunks)
    logits = executor.execute(prompt, plan, source, room).logits
    assert executor.arena.capacity == 512
    assert 0 < len(list(generate(executor, logits, prompt.tokens, room))) <= room
    with pytest.raises(PromptTooLong, match=r"513 tokens .* window of 512"):
        executor.execute(prompt, plan, source, room + 1)
    executor.close()


def test_a_stop_token_ends_it_unsaid(started: tuple[Executor, Prompt, torch.Tensor]) -> None:
    executor, prompt, logits = started
    said = list(generate(executor, logits, prompt.tokens, 12))
    for place, token in enumerate(said):
        if token in said[:place]:
            continue
        executor.model = replace(executor.model, stop_ids=frozenset({token, 999_999}))
        assert list(generate(executor, logits, prompt.tokens, 12)) == said[:place]


def test_the_stop_event_ends_it(started: tuple[Executor, Prompt, torch.Tensor]) -> None:
    executor, prompt, logits = started
    stop = threading.Event()
    found = []
    for token in generate(executor, logits, prompt.tokens, 12, stop):
        found.append(token)
        if len(found) == 3:
            stop.set()
    assert len(found) == 3
    assert list(generate(executor, logits, prompt.tokens, 12, stop)) == []


def test_nothing_is_computed_after_the_last_token(
    started: tuple[Executor, Prompt, torch.Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    executor, prompt, logits = started
    passes = []

    def counted(*arguments: Any) -> torch.Tensor:
        passes.append(1)
        return run_rows(*arguments)

    monkeypatch.setattr("models.generation.run_rows", counted)
    assert len(list(generate(executor, logits, prompt.tokens, 4))) == 4
    assert len(passes) == 3


@pytest.mark.parametrize(
    ("ids", "expected"),
    [
        ([], False),
        ([1, 2, 3], False),
        ([1, 2, 3, 9, 1, 2], False),
        ([1, 2, 3, 9, 1, 2, 3], True),
        ([1, 1, 1, 1], True),
        ([1, 1, 1], False),
        ([1, 2, 1, 2, 1], True),
        ([5, 1, 2, 3, 4], False),
    ],
)
def test_repeats(ids: list[int], expected: bool) -> None:
    assert repeats(ids, span=3) is expected


def test_a_loop_is_cut(started: tuple[Executor, Prompt, torch.Tensor], monkeypatch: pytest.MonkeyPatch) -> None:
    """A model that says the same 15 tokens for ever is stopped in its second round."""
    executor, prompt, _ = started
    steps = iter(range(1, 1000))

    def next_logits(*_: object) -> torch.Tensor:
        return torch.nn.functional.one_hot(torch.tensor(next(steps) % 15), 300).float()

    monkeypatch.setattr("models.generation.next_token_logits", next_logits)
    first = torch.nn.functional.one_hot(torch.tensor(0), 300).float()
    found = list(generate(executor, first, prompt.tokens, NEW_TOKENS))
    assert found == [step % 15 for step in range(26)]


TEXTS = [
    "plain",
    "Größe",
    "日本語",
    "🦆",
    "a🦆b👩‍👩‍👧‍👦c",
    "e\u0301",
    "\U0001f1e9\U0001f1ea",
    " leading",
    "line\n\nline",
]


@pytest.mark.parametrize("text", TEXTS)
def test_text_comes_in_whole_characters(text: str) -> None:
    tokenizer = tiny_tokenizer()
    stream = TextStream(tokenizer)
    pieces = []
    for token in tokenizer.encode(text):
        piece = stream.push(token)
        assert "\ufffd" not in piece
        pieces.append(piece)
        assert text.startswith("".join(pieces))
        assert stream.text == "".join(pieces)
    assert "".join(pieces) == text
    assert stream.finish() == ""
    assert stream.text == text


def test_an_answer_cut_within_a_character_says_so_at_the_end() -> None:
    tokenizer = tiny_tokenizer()
    stream = TextStream(tokenizer)
    ids = tokenizer.encode("ok 🦆")
    assert "".join(stream.push(token) for token in ids[:-1]) == "ok "
    assert stream.finish() == "\ufffd"
    assert stream.finish() == ""
    assert stream.text == "ok \ufffd"


def test_bytes_that_are_no_character_do_not_hold_back_what_follows() -> None:
    tokenizer = tiny_tokenizer()
    stream = TextStream(tokenizer)
    broken = [tokenizer.encode("🦆")[0], *tokenizer.encode("abc")]
    assert "".join(stream.push(token) for token in broken) + stream.finish() == "\ufffdabc"


def test_control_tokens_are_not_shown() -> None:
    tokenizer = tiny_tokenizer()
    stream = TextStream(tokenizer)
    for token in tokenizer.encode("<|im_start|>a<|im_end|>"):
        stream.push(token)
    assert stream.text == "a"
