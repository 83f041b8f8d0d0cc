"""Chunks: what they promise for every text (properties), and where the cuts fall in ordinary ones (examples)."""

import re
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from appliance.chunking import ChunkSpan, TokenCounter, split_into_chunks
from appliance.parsing import PageSpan, ParsedDocument


def token_starts(text: str) -> list[int]:
    """A toy tokenizer: a word with the space before it, in pieces of at most six characters; line feeds alone."""
    return [match.start() for match in re.finditer(r"\n| ?[^\s]{1,6}|\s", text)]


def chunk(text: str, limit: int, kind: str = "txt", pages: Sequence[PageSpan] = ()) -> list[str]:
    document = ParsedDocument("title", kind, text, tuple(pages))
    return [text[span.start : span.end] for span in split_into_chunks(document, token_starts(text), limit)]


_WORDS = st.text("abcXYZ0.,!?\"'()#|-*。é☃ \n\t", max_size=12)
_TEXTS = st.lists(_WORDS, max_size=80).map(" ".join) | st.text(max_size=300)


@given(_TEXTS, st.integers(1, 40), st.sampled_from(["txt", "html"]))
@settings(max_examples=300, deadline=None)
def test_chunks_cover_the_text_in_order_within_the_limit(text: str, limit: int, kind: str) -> None:
    starts = token_starts(text)
    spans = split_into_chunks(ParsedDocument("t", kind, text), starts, limit)
    position = 0
    for span in spans:
        assert text[position : span.start].strip() == ""
        chunk_text = text[span.start : span.end]
        assert chunk_text == chunk_text.strip() != ""
        assert TokenCounter(starts).count(span.start, span.end) <= limit
        position = span.end
    assert text[position:].strip() == ""


@given(st.lists(_TEXTS, min_size=1, max_size=4), st.integers(4, 30))
@settings(max_examples=100, deadline=None)
def test_chunks_stay_on_their_page(texts: list[str], limit: int) -> None:
    pages, position = [], 0
    for number, text in enumerate(texts, start=1):
        pages.append(PageSpan(number, position, position + len(text)))
        position += len(text) + 2
    whole = "\n\n".join(texts)
    spans = split_into_chunks(ParsedDocument("t", "pdf", whole, tuple(pages)), token_starts(whole), limit)
    for span in spans:
        page = pages[(span.page or 0) - 1]
        assert page.start <= span.start < span.end <= page.end
    covered = sum(len("".join(whole[span.start : span.end].split())) for span in spans)
    assert covered == len("".join(whole.split()))


@given(st.lists(st.integers(1, 9), min_size=1, max_size=60), st.integers(12, 60))
@settings(max_examples=200, deadline=None)
def test_sentences_stay_whole_and_no_chunk_is_tiny(lengths: list[int], limit: int) -> None:
    sentences = [" ".join(["Word"] * length) + "." for length in lengths]
    text = " ".join(sentences)
    counter = TokenCounter(token_starts(text))
    document = ParsedDocument("t", "txt", text)
    spans = split_into_chunks(document, token_starts(text), limit)
    assert all(text[span.end - 1] == "." for span in spans)
    if len(spans) > 1:
        # A sentence here has at most nine tokens: a fair cut is always that near.
        assert all(counter.count(span.start, span.end) >= limit / 4 - 9 for span in spans)


def test_an_over_long_rest_is_shared_evenly() -> None:
    text = " ".join(["One two three four five six."] * 20)  # 120 tokens and some
    sizes = [len(piece) for piece in chunk(text, 100)]
    assert len(sizes) == 2
    assert max(sizes) - min(sizes) <= len("One two three four five six.") * 2


def test_cuts_prefer_sections_and_headings_stay_with_their_text() -> None:
    body = "This is a sentence of eight words here. " * 3
    text = "\n\n".join(f"{heading}\n\n{body.strip()}" for heading in ("# One", "## Two", "Plain heading", "4. Four"))
    pieces = chunk(text, 40)
    assert [piece.partition("\n")[0] for piece in pieces] == ["# One", "## Two", "Plain heading", "4. Four"]


@pytest.mark.parametrize(
    "sentence",
    [
        "Dr. Annelie Brandstetter of Inc. Co. met Mr. J. Smith on 3. May at 9 a.m. in St. Gallen, e.g. for tea.",
        "It costs 3.50 euros (approx. 4 dollars)!",
        'She said "No." and left.',
        "Wait... what happened?",
        "Use file.txt, version 2.1.3.",
    ],
)
def test_a_stop_inside_a_sentence_is_no_end(sentence: str) -> None:
    other = "Here stands another sentence, before and after."
    limit = len(token_starts(sentence))
    assert sentence in chunk(f"{other} {sentence} {other}", limit)


def test_wrapped_lines_are_one_sentence_but_items_and_rows_are_not() -> None:
    wrapped = "This sentence goes on\nfor two lines."
    assert chunk(f"{wrapped} {wrapped}", len(token_starts(wrapped))) == [wrapped, wrapped]
    assert chunk("- one item\n- two items", 5) == ["- one item", "- two items"]
    assert chunk("a | b\nc | d", 4) == ["a | b", "c | d"]


def test_sentences_without_spaces_are_found() -> None:
    text = "今日は雨。明日は晴れ。"
    spans = split_into_chunks(ParsedDocument("t", "html", text), range(len(text)), 8)
    assert [text[span.start : span.end] for span in spans] == ["今日は雨。", "明日は晴れ。"]


def test_a_sentence_above_the_limit_is_cut_at_lines_then_words_then_anywhere() -> None:
    assert chunk("aa bb\ncc dd", 2) == ["aa bb", "cc dd"]
    assert all(piece.split() and set(piece.split()) == {"word"} for piece in chunk("word " * 50, 7))
    assert "".join(chunk("x" * 100, 3)) == "x" * 100


def test_a_character_of_many_tokens_still_gets_its_chunk() -> None:
    document = ParsedDocument("t", "txt", "☃☃")
    spans = split_into_chunks(document, [0, 0, 0, 1, 1, 1], 2)
    assert spans == [ChunkSpan(0, 1, None), ChunkSpan(1, 2, None)]


def test_blank_text_has_no_chunks_and_a_limit_of_none_is_refused() -> None:
    assert chunk(" \n\n ", 5) == []
    with pytest.raises(ValueError, match="limit_tokens"):
        chunk("text", 0)


@pytest.mark.parametrize("text", ["." * 200_000 + "x", "A. " * 60_000, "x" * 200_000, "# h\n\n" * 20_000])
@pytest.mark.timeout(20)
def test_hostile_text_takes_no_square_of_time(text: str) -> None:
    document = ParsedDocument("t", "txt", text)
    assert split_into_chunks(document, list(range(0, len(text), 4)), 256)
