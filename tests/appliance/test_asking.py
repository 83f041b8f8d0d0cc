"""Asking with every strategy: refusals before a model is loaded, what the details say, blocks behind neighbours."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from appliance import loaded
from appliance.answering import Answerer
from appliance.errors import ApplianceError
from appliance.gate import LADDER, Gate, GateEntry
from appliance.removal import remove_document
from appliance.reply import Prepared
from appliance.retrieval import Hit, Retriever
from appliance.service import Answer, Appliance
from models.strategies import STRATEGIES
from tests.appliance.fixtures import QUESTION, Cli
from tests.appliance.neighbourhood import neighbouring

SELECTING = ("blend", "craft", "epic", "fusion")


def ask(appliance: Appliance, strategy: str = "fusion", **options: Any) -> Answer:
    return appliance.answer(QUESTION, **{"strategy": strategy, "top_k": 4, "max_new_tokens": 16, **options})


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--ratio", "1.5"], ["ratio 1.5", "choose 0 to 1"]),
        (["--ratio", "-0.1"], ["ratio -0.1", "choose 0 to 1"]),
        (["--ratio", "nan"], ["ratio nan", "choose 0 to 1"]),
        (["--select", "first"], ["'first' is unknown", "paper", "last", "spread"]),
        (["--strategy", "magic"], ["'magic' is unknown", *STRATEGIES]),
    ],
)
def test_refused_before_a_model_is_loaded(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, arguments: list[str], words: list[str]
) -> None:
    def load(*_arguments: Any, **_options: Any) -> None:
        raise AssertionError("a model is loaded")

    monkeypatch.setattr(loaded, "open_engine", load)
    ran = cli("ask", QUESTION, "--strategy", "fusion", *arguments)
    assert (ran.code, ran.out, len(ran.error_lines)) == (1, "", 1)
    assert all(word in ran.error_lines[0] for word in words)


def test_the_command_line_passes_ratio_and_selection_on(cli: Cli, sample_files: Path) -> None:
    cli("ingest", sample_files)
    chosen = ("--strategy", "fusion", "--ratio", "0.5", "--select", "paper", "--max-new-tokens", 4)
    found = cli("ask", QUESTION, *chosen, "--json").json
    assert (found["strategy"], found["plan"]["ratio"], found["plan"]["select"]) == ("fusion", 0.5, "paper")
    assert found["plan"]["tokens_recomputed"] == found["tokens"]["recomputed"] > 0
    assert f"{found['tokens']['recomputed']} of the passages reread" in cli("ask", QUESTION, *chosen).err
    assert "reread" not in cli("ask", QUESTION, "--strategy", "reuse", "--max-new-tokens", 4).err


@pytest.mark.parametrize("strategy", SELECTING)
def test_details_of_a_strategy_that_rereads(appliance: Appliance, sample_files: Path, strategy: str) -> None:
    appliance.ingest([sample_files])
    full, reuse = ask(appliance, "full"), ask(appliance, "reuse")
    answer = ask(appliance, strategy, ratio=0.2)
    told = {"choice": strategy, "reason": "asked for", "ratio": 0.2, "near_chunks": []}
    select = "spread" if strategy == "fusion" else None
    assert answer.plan == {**told, "select": select, "tokens_recomputed": answer.tokens["recomputed"]}
    assert 0 < answer.tokens["recomputed"] < answer.tokens["computed"] < full.tokens["computed"]
    assert answer.tokens["reused"] + answer.tokens["computed"] == answer.tokens["prompt"]
    assert "exact" not in str(answer.as_json()["plan"])
    everything = ask(appliance, strategy, ratio=1.0)
    assert everything.answer_ids == full.answer_ids
    assert everything.tokens["reused"] <= len(appliance.engine.template.head)
    if strategy == "fusion":
        assert ask(appliance, strategy, ratio=0.0).answer_ids == reuse.answer_ids
    assert full.tokens["recomputed"] == reuse.tokens["recomputed"] == 0


def test_blocks_behind_neighbours_are_taken_but_for_the_first_chunk(appliance: Appliance, sample_files: Path) -> None:
    appliance.ingest([sample_files])
    plain = ask(appliance, ratio=0.0)
    assert plain.plan["near_chunks"] == []
    assert neighbouring(appliance).run().error is None
    near = ask(appliance, ratio=0.0)
    assert near.plan["near_chunks"] == [1, 2, 3]
    assert near.answer_ids != plain.answer_ids, "other KV gives other tokens in a random model"
    for strategy in ("reuse", "blend", "craft", "epic"):
        assert ask(appliance, strategy).plan.get("near_chunks", []) == []
    assert appliance.store.leases_out == 0


def test_craft_reads_what_was_recorded(appliance: Appliance, sample_files: Path) -> None:
    appliance.ingest([sample_files])
    noted: list[Prepared] = []
    begin = Answerer.begin

    def begun(self: Answerer, prepared: Prepared) -> Any:
        noted.append(prepared)
        return begin(self, prepared)

    with pytest.MonkeyPatch.context() as watched:
        watched.setattr(Answerer, "begin", begun)
        ask(appliance, "craft")
        neighbouring(appliance).run()
        ask(appliance, "craft")
    before, after = (prepared.plan.facts for prepared in noted)
    assert [fact.outside_mass is None for fact in before] == [True] * 4
    assert [fact.outside_mass is None for fact in after] == [False] * 4
    assert [fact.exact for fact in after] == [True, False, False, False]


@pytest.mark.parametrize("whole", [False, True])
def test_neighbours_deleted_meanwhile(
    appliance: Appliance, sample_files: Path, monkeypatch: pytest.MonkeyPatch, whole: bool
) -> None:
    """Between looking blocks up and loading them the documents that they attended to go: their own blocks serve."""
    appliance.ingest([sample_files])
    neighbouring(appliance).run()
    own = {chunk.id for chunk in appliance.catalog.chunks_of(appliance.find_document("pump.txt"))}
    search = Retriever.search

    def of_one_document(self: Retriever, collection_id: int, text: str, top_k: int, **_: Any) -> list[Hit]:
        return [hit for hit in search(self, collection_id, text, 64) if hit.chunk_id in own][:top_k]

    monkeypatch.setattr(Retriever, "search", of_one_document)
    assert ask(appliance, top_k=3).plan["near_chunks"] == [1, 2]
    begin = Answerer.begin

    def deleting(self: Answerer, prepared: Prepared) -> Any:
        for document in (appliance.find_document("rules.md"), appliance.find_document("price.html")):
            if whole:
                remove_document(appliance.home, appliance.catalog, appliance.store, document)
            else:
                appliance.catalog.begin_delete(document)
        return begin(self, prepared)

    with monkeypatch.context() as meanwhile:
        meanwhile.setattr(Answerer, "begin", deleting)
        answer = ask(appliance, top_k=3)
    assert answer.tokens["generated"] > 0
    after = ask(appliance, top_k=3)
    assert (after.plan["near_chunks"], after.warnings) == ([], ())
    if whole:
        assert answer.answer_ids == after.answer_ids
    assert appliance.store.leases_out == 0


def a_gate(*top1: float) -> Gate:
    """The ladder measured over the tests' blocks as far as these agreements go."""
    ladder = [rung for rung in LADDER if rung.measured_over(near=False)]
    entries = tuple(GateEntry(rung, False, "int8", value, 0.1, 16) for rung, value in zip(ladder, top1, strict=False))
    codecs = ("bf16", "f32", "int8", "int4", "int8+int4")
    return Gate("calibrated", 0.05, 0.98, entries, dict.fromkeys(codecs, 0.98), dict.fromkeys(codecs, 0.1))


@pytest.fixture
def gated(appliance: Appliance, sample_files: Path) -> Callable[[Gate], Answer]:
    """`auto`, where the planner loads, through this gate."""
    appliance.ingest([sample_files])
    appliance.prepare("default")
    planner = appliance._models.planner()
    measured = planner.current._measured
    planner.current._measured = replace(measured, pass_ms=1e6, row_ms=1e6)  # loading is always sooner

    def ask_through(gate: Gate) -> Answer:
        appliance._models._gate = gate
        return ask(appliance, "auto")

    return ask_through


def test_auto_stays_within_the_quality_bound(gated: Callable[[Gate], Answer]) -> None:
    well = gated(a_gate(0.97, 0.97))
    assert (well.strategy, "gate" in well.plan) == ("reuse", False)
    poor = gated(a_gate(0.80, 0.97))
    assert (poor.strategy, poor.plan["ratio"], poor.plan["select"]) == ("fusion", 0.15, "spread")
    assert (poor.plan["choice"], poor.plan["overtaken_chunks"]) == ("load", 0)
    assert poor.plan["tokens_recomputed"] == poor.tokens["recomputed"] > 0
    assert poor.plan["gate"]["asked"] == "reuse"
    assert poor.plan["gate"]["carried_out"] == "fusion"
    assert "reuse agrees with full at 80.0%" in poor.plan["gate"]["reason"]
    poorer = gated(a_gate(0.80, 0.80, 0.80, 0.80))
    assert (poorer.strategy, poorer.tokens["reused"]) == ("full", 0)
    assert poorer.plan["gate"]["carried_out"] == "full"
    unknown = gated(Gate("the quality gate is open: calibrate"))
    assert unknown.strategy == "reuse"
    assert unknown.plan["gate"]["reason"] == "the quality gate is open: calibrate"


def test_what_is_named_is_carried_out_and_told(appliance: Appliance, gated: Callable[[Gate], Answer]) -> None:
    gated(a_gate(0.80, 0.97))
    answer = ask(appliance, "reuse")
    assert answer.strategy == "reuse"
    assert answer.plan["gate"]["reason"].startswith("outside the quality bound, carried out as asked for")


@pytest.mark.parametrize("options", [{"ratio": 2.0}, {"select": "most"}, {"strategy": "magic"}])
def test_refused_options_load_nothing(appliance: Appliance, options: dict[str, Any]) -> None:
    with pytest.raises(ApplianceError, match="choose"):
        appliance.answer(QUESTION, **{"strategy": "fusion", **options})
    assert appliance._models.present is None
