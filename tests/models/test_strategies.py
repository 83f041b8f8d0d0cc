"""Plans: segments cover the prompt, and only what a strategy says is computed."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.errors import UnknownStrategy
from models.prompt import Prompt
from models.strategies import STRATEGIES, Origin, Plan, Segment, find_strategy

each_strategy = pytest.mark.parametrize("name", STRATEGIES)
LENGTHS = st.tuples(st.integers(1, 40), st.lists(st.integers(1, 90), max_size=9), st.integers(1, 40))


def prompt_of(lengths: tuple[int, list[int], int]) -> Prompt:
    """A prompt whose ids count up."""
    head, chunks, tail = lengths
    ids = iter(range(head + sum(chunks) + tail))

    def part(count: int) -> np.ndarray:
        return np.array([next(ids) for _ in range(count)], dtype=np.int32)

    return Prompt(part(head), tuple(part(count) for count in chunks), part(tail))


@each_strategy
@given(lengths=LENGTHS)
def test_segments_cover_the_prompt_in_order(name: str, lengths: tuple[int, list[int], int]) -> None:
    prompt = prompt_of(lengths)
    plan = find_strategy(name).plan(prompt)
    assert plan.strategy == name
    assert plan.tokens == prompt.tokens
    at = 0
    for segment in plan.segments:
        assert segment.start == at
        at += segment.tokens
    chunks = [segment for segment in plan.segments if segment.chunk is not None]
    assert [segment.chunk for segment in chunks] == list(range(len(prompt.chunks)))
    for segment in chunks:
        assert segment.chunk is not None
        ids = prompt.ids()[segment.start : segment.start + segment.tokens]
        assert np.array_equal(ids, prompt.chunks[segment.chunk])


@each_strategy
@given(lengths=LENGTHS)
def test_the_rows_are_ascending_and_hold_the_tail(name: str, lengths: tuple[int, list[int], int]) -> None:
    prompt = prompt_of(lengths)
    rows = find_strategy(name).plan(prompt).rows()
    assert rows.dtype == np.int64
    assert (np.diff(rows) > 0).all()
    assert np.array_equal(rows[-len(prompt.tail) :], np.arange(prompt.tokens - len(prompt.tail), prompt.tokens))


@given(lengths=LENGTHS)
def test_full_computes_all_and_reuse_the_tail_only(lengths: tuple[int, list[int], int]) -> None:
    prompt = prompt_of(lengths)
    full, reuse = find_strategy("full").plan(prompt), find_strategy("reuse").plan(prompt)
    assert np.array_equal(full.rows(), np.arange(prompt.tokens))
    assert {segment.origin for segment in full.segments} == {Origin.COMPUTE}
    assert np.array_equal(reuse.rows(), np.arange(prompt.tokens)[-len(prompt.tail) :])
    origins = [segment.origin for segment in reuse.segments]
    assert origins == [Origin.HEAD, *[Origin.BLOCK] * len(prompt.chunks), Origin.COMPUTE]


def test_recomputed_rows_are_merged_in_order() -> None:
    segments = (Segment(0, 3, Origin.HEAD), Segment(3, 4, Origin.BLOCK, 0), Segment(7, 2, Origin.COMPUTE))
    assert Plan("x", segments, np.array([4, 6])).rows().tolist() == [4, 6, 7, 8]
    assert Plan("x", segments, np.array([6, 7])).rows().tolist() == [6, 7, 8]


def test_names() -> None:
    assert {"full", "reuse"} <= set(STRATEGIES)
    assert all(STRATEGIES[name].name == name for name in STRATEGIES)
    with pytest.raises(UnknownStrategy, match="'guess' is unknown: choose auto, full, reuse"):
        find_strategy("guess")
