"""Rates follow what questions show, and are kept between starts."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from appliance.planner import ChunkCost, Planner, Rates, choose, keep_rates, read_rates
from models.executor import Execution

RATES = Rates(pass_ms=30.0, row_ms=0.6, pair_ms=1e-4, disk_bytes_per_ms=1e6, block_ms=0.1, place_tokens_per_ms=400.0)
CHUNKS = [ChunkCost(230, 5_300_000, "disk")] * 4


def execution(load_ms: float, compute_ms: float, overtaken: int = 0, tokens: int = 0) -> Execution:
    return Execution(torch.zeros(1), 0, tokens, load_ms, 0.0, compute_ms, {}, overtaken)


def ask(planner: Planner, disk_slower: float, compute_slower: float = 1.0) -> str:
    """One question on a computer whose disk and model are so many times slower than measured."""
    decision = choose(planner.current.rates(), 20, CHUNKS, 30)
    truth = choose(RATES, 20, CHUNKS, 30)
    waited = truth.load_ms - truth.disk_ms + truth.disk_ms * disk_slower
    factor = planner.current.computing
    overtaken = decision.choice == "load" and waited > decision.overtake_after_ms
    took = min(waited, decision.overtake_after_ms)
    tokens = decision.compute_tokens + 460 * overtaken
    planner.observe(decision, execution(took, decision.compute_ms / factor * compute_slower, 2 * overtaken, tokens))
    return decision.choice


@pytest.mark.parametrize("slower", [1.0, 10.0, 40.0])
def test_a_disk_that_is_as_slow_as_measured_is_never_taken_for_slower(slower: float) -> None:
    """At 25 MB/ms a load takes 800 ms of which nothing is wrong: it is waited for or computed, not learned from."""
    rates = replace(RATES, disk_bytes_per_ms=RATES.disk_bytes_per_ms / slower)
    planner = Planner(rates)
    for _ in range(8):
        decision = choose(planner.current.rates(), 20, CHUNKS, 30)
        truth = choose(rates, 20, CHUNKS, 30)
        overtaken = decision.choice == "load" and truth.load_ms > decision.overtake_after_ms
        assert not overtaken
        done = execution(decision.load_ms, decision.compute_ms, 0, decision.compute_tokens)
        planner.observe(decision, done)
    assert planner.current.reading == pytest.approx(1.0, abs=0.05)
    assert planner.current.computing == pytest.approx(1.0, abs=0.05)


def test_what_was_not_planned_says_nothing_of_the_model() -> None:
    """A damaged block is computed with the prompt: more tokens than planned, not a slower model."""
    planner = Planner(RATES)
    decision = choose(RATES, 20, CHUNKS, 30)
    done = execution(decision.load_ms, decision.compute_ms * 4, 0, decision.compute_tokens + 230)
    planner.observe(decision, done)
    assert planner.current.computing == 1.0


def test_a_disk_that_becomes_slow_is_noticed() -> None:
    planner = Planner(RATES)
    assert ask(planner, 1.0) == "load"
    for _ in range(6):
        last = ask(planner, 60.0)
    assert last in ("split", "compute")
    assert planner.current.reading > 5


def test_a_disk_that_recovers_is_tried_again() -> None:
    planner = Planner(RATES)
    planner.current.reading = 50.0
    assert ask(planner, 50.0) != "load"
    assert "load" in [ask(planner, 1.0) for _ in range(60)]


def test_overtaken_loads_count_as_slow() -> None:
    planner = Planner(RATES)
    decision = choose(RATES, 20, CHUNKS, 30)
    planner.observe(decision, execution(decision.load_ms, 1000.0, overtaken=2))
    assert planner.current.reading > 1
    assert planner.current.computing == 1.0, "what was computed is not what was planned"


def test_a_model_that_became_slow_is_noticed() -> None:
    planner = Planner(RATES)
    for _ in range(12):
        ask(planner, 1.0, compute_slower=3.0)
    assert planner.current.computing == pytest.approx(3.0, rel=0.1)
    assert planner.current.rates().row_ms == pytest.approx(RATES.row_ms * planner.current.computing)
    assert planner.current.rates().place_tokens_per_ms == RATES.place_tokens_per_ms


def test_rates_are_kept_for_each_model(tmp_path: Path) -> None:
    file = tmp_path / "rates.json"
    assert read_rates(file, "a") is None
    keep_rates(file, "a", RATES)
    assert read_rates(file, "a") == RATES
    assert read_rates(file, "b") is None
    for number in range(20):
        keep_rates(file, f"model {number}", RATES)
    assert read_rates(file, "model 19") == RATES
    assert read_rates(file, "a") is None, "old models are forgotten"


DAMAGED = (
    "",
    "3",
    "[]",
    "[5]",
    "{",
    "[" * 5000,
    '{"a": 1}',
    '{"a": {"pass_ms": 1}}',
    '{"a": {"pass_ms": "x"}}',
    '{"a": {"pass_ms": 1' + "0" * 400 + "}}",
)


@pytest.mark.parametrize("content", DAMAGED)
def test_a_damaged_file_means_measuring_again(tmp_path: Path, content: str) -> None:
    file = tmp_path / "rates.json"
    file.write_text(content)
    assert read_rates(file, "a") is None
    keep_rates(file, "a", RATES)
    assert read_rates(file, "a") == RATES


def test_rates_that_cannot_be_are_not_believed(tmp_path: Path) -> None:
    file = tmp_path / "rates.json"
    keep_rates(file, "a", Rates(30.0, 0.6, 1e-4, 0.0, 0.1, 400.0))
    assert read_rates(file, "a") is None
