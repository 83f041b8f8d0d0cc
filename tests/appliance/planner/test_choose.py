"""What the planner decides: never worse, by its own rates, than loading all or computing all."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.planner import ChunkCost, Rates, choose
from appliance.planner.choose import load_takes_ms

RATES = Rates(pass_ms=30.0, row_ms=0.6, pair_ms=1e-4, disk_bytes_per_ms=1e6, block_ms=0.1, place_tokens_per_ms=400.0)
HEAD, TAIL = 20, 30
ON_DISK = ChunkCost(230, 5_300_000, "disk")
IN_MEMORY = ChunkCost(230, 5_300_000, "pageable")
ABSENT = ChunkCost(230)


def full_ms(rates: Rates, chunks: list[ChunkCost]) -> float:
    return rates.pass_takes_ms(sum(chunk.tokens for chunk in chunks) + TAIL, HEAD)


def test_a_fast_disk_is_loaded_from() -> None:
    decision = choose(RATES, HEAD, [ON_DISK] * 8, TAIL)
    assert (decision.choice, decision.computed) == ("load", ())
    assert decision.forecast_ms["full"] == pytest.approx(full_ms(RATES, [ON_DISK] * 8))
    assert decision.disk_ms == pytest.approx(8 * 5.3)
    assert decision.load_ms == pytest.approx(8 * load_takes_ms(RATES, ON_DISK))
    assert "8 blocks, 42.4 MB from disk" in decision.reason


def test_nothing_to_load_is_one_pass() -> None:
    decision = choose(RATES, HEAD, [ABSENT] * 3, TAIL)
    assert (decision.choice, decision.computed, decision.load_ms) == ("compute", (0, 1, 2), 0.0)
    assert decision.compute_ms == pytest.approx(full_ms(RATES, [ABSENT] * 3))
    assert decision.reason.startswith("no chunk has KV yet")


def test_a_slow_disk_splits_the_list_and_a_dead_one_computes_it_all() -> None:
    slow = replace(RATES, disk_bytes_per_ms=3e4)
    split = choose(slow, HEAD, [ON_DISK] * 8, TAIL)
    assert split.choice == "split"
    assert split.computed == tuple(range(len(split.computed)))
    assert 0 < len(split.computed) < 8
    assert split.forecast_ms["chosen"] < min(split.forecast_ms["load"], split.forecast_ms["full"])
    dead = choose(replace(RATES, disk_bytes_per_ms=1.0), HEAD, [ON_DISK] * 8, TAIL)
    assert (dead.choice, len(dead.computed)) == ("compute", 8)


def test_what_lies_in_memory_is_loaded_although_the_disk_is_dead() -> None:
    chunks = [IN_MEMORY, ON_DISK, IN_MEMORY, IN_MEMORY]
    decision = choose(replace(RATES, disk_bytes_per_ms=1.0), HEAD, chunks, TAIL)
    assert set(decision.computed) == {0, 1}


def test_chunks_without_kv_are_computed_and_the_others_loaded() -> None:
    decision = choose(RATES, HEAD, [ON_DISK, ABSENT, ON_DISK], TAIL)
    assert (decision.choice, decision.computed) == ("split", (1,))
    assert "1 without KV" in decision.reason


def test_no_chunks() -> None:
    decision = choose(RATES, HEAD, [], TAIL)
    assert (decision.choice, decision.computed) == ("compute", ())


costs = st.builds(
    ChunkCost,
    st.integers(1, 512),
    st.integers(4096, 20_000_000),
    st.sampled_from([None, "disk", "pageable", "pinned", "gpu"]),
)
rates = st.builds(
    Rates,
    st.floats(0.01, 100),
    st.floats(1e-4, 5),
    st.floats(1e-7, 1e-3),
    st.floats(1.0, 1e8),
    st.floats(0.01, 5),
    st.floats(0.5, 1e5),
)


@given(rates, st.lists(costs, max_size=64))
def test_the_choice_is_the_best_of_what_it_knows(known: Rates, chunks: list[ChunkCost]) -> None:
    decision = choose(known, HEAD, chunks, TAIL)
    full = full_ms(known, chunks)
    assert decision.forecast_ms["chosen"] <= full * 1.0001
    longest = 0.25 * full
    if decision.forecast_ms["load"] <= longest:
        assert decision.forecast_ms["chosen"] <= decision.forecast_ms["load"] * 1.0001
    absent = {number for number, chunk in enumerate(chunks) if chunk.tier is None}
    assert absent <= set(decision.computed) <= set(range(len(chunks)))
    late_ms = max(2.0, 0.03 * full)
    assert decision.overtake_after_ms <= longest + late_ms + 1e-6  # what a stalled disk costs at most
    if decision.choice == "load":
        assert decision.overtake_after_ms >= decision.load_ms + late_ms - 1e-6, "a load on time is never overtaken"
    assert (decision.choice == "compute") == (len(decision.computed) == len(chunks))


def test_what_a_selector_rereads_is_not_divided() -> None:
    slow = replace(RATES, disk_bytes_per_ms=3e4)
    assert choose(slow, HEAD, [ON_DISK] * 8, TAIL).choice == "split"
    whole = choose(slow, HEAD, [ON_DISK] * 8, TAIL, again_tokens=100)
    assert whole.choice in ("load", "compute")
    usual, again = (choose(RATES, HEAD, [ON_DISK] * 8, TAIL, tokens) for tokens in (0, 100))
    assert (usual.choice, again.choice) == ("load", "load")
    assert again.forecast_ms["load"] > usual.forecast_ms["load"]
    assert again.forecast_ms["full"] == usual.forecast_ms["full"]
    assert (again.compute_tokens, again.compute_ms) == (usual.compute_tokens, 0.0)
