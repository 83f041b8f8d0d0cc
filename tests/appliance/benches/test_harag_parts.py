"""Parts of the HA-RAG bench by hand: mixing data, halves, skew, means; and TurboRAG against our own path."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from appliance.benches.base import BenchRefused
from appliance.benches.datasets import BenchDocument, BenchQuestion, QuestionSet
from appliance.benches.harag.base import BF16, TURBORAG, TURBORAG_FAST, Asked, FirstToken, SystemSpec
from appliance.benches.harag.quality import Answered, SetAnswer
from appliance.benches.harag.result import results_of, windows
from appliance.benches.harag.stores import StoredSets, need_bytes, store_sets
from appliance.benches.harag.systems import SystemMaker
from appliance.benches.harag.turborag import TurboRag, _rotated
from appliance.benches.harag.workload import Workload, mix_evenly, skew_of, split_questions
from appliance.engine import Engine, open_engine
from appliance.settings import Settings
from models.rotary import rotate
from models.scoring import answer_log_probs, divergence
from storage.catalog import Catalog
from storage.home import Home


def question_set(
    name: str, documents: int, questions: dict[str, tuple[tuple[int, ...], tuple[int, ...]]]
) -> QuestionSet:
    return QuestionSet(
        name,
        tuple(BenchDocument(name, f"text {number}") for number in range(documents)),
        tuple(BenchQuestion(text, ("x",), gold, context) for text, (gold, context) in questions.items()),
    )


def test_sets_are_mixed_evenly_and_questions_stay_whose_documents_are_in() -> None:
    long = question_set("long", 9, {"a": ((0,), (0, 8)), "b": ((8,), (8,)), "same": ((1,), (1,))})
    short = question_set("short", 2, {"c": ((), (0, 1)), "same": ((0,), (0,)), "d": ((), (0,)), " ": ((0,), (0,))})
    mixed = mix_evenly([long, short], 6, lambda document: [7, 7] if document.title == "long" else [5])
    # long, short, short, long (which has as many chunks by then, and stands first), long
    assert [document.title for document in mixed.documents] == ["long", "short", "short", "long"]
    assert {question.text: question.gold for question in mixed.questions} == {"a": (0,), "same": (3,), "c": (), "d": ()}
    assert next(question for question in mixed.questions if question.text == "c").context == (1, 2)
    assert len(mix_evenly([long, short], 1000, lambda _: [5]).documents) == 11
    assert len(mix_evenly([long], 1000, lambda _: [5, 5], most_tokens=35).documents) == 3
    twice = mix_evenly([long, long], 1000, lambda _: [5])
    assert len(twice.documents) == 9
    assert len(mix_evenly([long], 9, lambda document: [] if document.text == "text 0" else [1]).documents) == 8


def test_halves_are_disjoint_and_always_the_same() -> None:
    questions = [BenchQuestion(str(number), (), (0,), (0,)) for number in range(21)]
    learning, measured = split_questions(questions, 100)
    assert (learning, measured) == split_questions(questions, 100)
    assert set(learning) | set(measured) == {str(number) for number in range(21)}
    assert (len(learning), len(measured)) == (10, 11)
    assert split_questions(questions, 3) == (learning, measured[:3])
    with pytest.raises(BenchRefused, match="fewer than two questions"):
        split_questions(questions[:1], 3)


def workload_of(found: dict[str, tuple[str, ...]], learning: tuple[str, ...], keys: str, counts: Any) -> Workload:
    ids: Any = dict.fromkeys(keys)
    return Workload({}, {}, ids, learning, tuple(text for text in found if text not in learning), found, counts)


def test_skew_by_hand() -> None:
    found: dict[str, tuple[str, ...]] = {"l": ("a", "b"), "m": ("a", "c"), "n": ("a", "d")}
    workload = workload_of(found, ("l",), "dcba" + "efghij", {"a": 1, "b": 1})
    assert [key for key, _ in workload.ranked()][:4] == ["b", "a", "d", "c"]  # ties as they stand in the corpus
    skew = skew_of(workload, lambda key: "gpu" if key == "a" else "disk")
    assert skew["accesses"] == 6
    assert skew["distinct_chunks"] == 4
    assert skew["share_of_hottest"] == {"1%": 0.5, "5%": 0.5, "10%": 0.5, "20%": 4 / 6}
    assert skew["measured_never_learned"] == 0.5
    assert skew["hit_potential"] == {"disk": 0.5, "gpu": 0.5}


def asked(number: int, retrieve_ms: float, **runs: tuple[float, float, int, str]) -> Asked:
    """Runs as (ms, load ms, token, tier)."""
    found = {
        name: FirstToken(token, ms, load_ms, {tier: 2}, 100 if tier == "disk" else 0)
        for name, (ms, load_ms, token, tier) in runs.items()
    }
    return Asked(str(number), ("k", "l"), 9, retrieve_ms, found)


def test_means_are_mean_over_mean() -> None:
    runs = [
        asked(
            0, 10.0, turborag=(90.0, 40.0, 1, "disk"), turborag_fast=(40.0, 20.0, 1, "disk"), x=(40.0, 10.0, 1, "disk")
        ),
        asked(
            1, 10.0, turborag=(190.0, 60.0, 2, "disk"), turborag_fast=(90.0, 30.0, 2, "disk"), x=(10.0, 5.0, 3, "gpu")
        ),
    ]
    told = Answered("0", {
        "bf16": SetAnswer((1,), "", 0.5, (True,), (True,), 0.1),
        "s": SetAnswer((1,), "", 0.25, (True, False), (True, True), 0.2),
        TURBORAG: SetAnswer((1,), "", 1.0, (True,), (False,), 0.0),
    })  # fmt: skip
    specs = (SystemSpec(TURBORAG, "bf16"), SystemSpec(TURBORAG_FAST, "bf16"), SystemSpec("x", "s", ("gpu",)))
    found = results_of(specs, runs, [told])
    x = found["x"]
    assert x.speedup_mean == pytest.approx(300 / 70)
    assert x.speedup_late == x.speedup_max == pytest.approx(200 / 20)
    assert x.speedup_median == pytest.approx((100 / 50 + 10) / 2)
    assert x.windows == pytest.approx((2.0, 10.0))
    assert x.load_speedup == pytest.approx(100 / 15)
    assert x.load_speedup_median == pytest.approx((4 + 12) / 2)
    assert x.load_speedup_max == pytest.approx(12)
    assert x.load_windows == pytest.approx((4, 12))
    assert x.load_speedup_fast == pytest.approx(50 / 15)
    assert x.load_speedup_fast_median == pytest.approx((2 + 6) / 2)
    assert x.load_speedup_fast_max == pytest.approx(6)
    assert x.load_windows_fast == pytest.approx((2, 6))
    assert (x.bytes_read, x.hit_rate, x.first_token_top1) == (100, {"disk": 0.5, "gpu": 0.5}, 0.5)
    assert (x.rouge1, x.top1, x.top1_bf16) == (0.25, 0.5, 1.0)
    assert (found[TURBORAG].top1, found[TURBORAG].top1_bf16, found[TURBORAG_FAST].rouge1) == (1.0, 0.0, 0.5)
    assert results_of(specs, runs, [])["x"].top1 is None


def test_windows_hold_every_question_once() -> None:
    questions = [asked(number, 1.0) for number in range(37)]
    parts = windows(questions)
    assert [one for part in parts for one in part] == questions
    assert len(parts) == 16
    assert {len(part) for part in parts} == {2, 3}
    assert [len(part) for part in windows(questions[:3])] == [1, 1, 1]


@pytest.fixture
def engine(settings: Settings) -> Iterator[Engine]:
    opened = open_engine(settings)
    yield opened
    opened.close()


def test_turborag_gives_what_our_path_gives(engine: Engine, tmp_path: Path) -> None:
    home = Home(tmp_path / "blocks")
    home.create()
    texts = (
        "The pump was serviced in May.",
        "Visitors sign in at the desk and wear a badge.",
        "Brass costs nine euros.",
    )
    ids = {f"{n:064x}": engine.template.chunk("T", text) for n, text in enumerate(texts)}
    sets = {"bf16": dict.fromkeys(ids, BF16)}
    stored = store_sets(engine, home, ids, sets, lambda *_: None)
    assert need_bytes(engine, ids, sets) == sum(file.stat().st_size for file in home.blocks.iterdir())
    keys = list(ids)
    prompt = engine.template.prompt([ids[key] for key in keys[::-1]], "Who wears a badge?")
    turborag = TurboRag(engine.reader, home.blocks, stored.rows["bf16"])
    kv = turborag.load(prompt, keys)
    with Catalog.open(home) as catalog:
        ours = SystemMaker(engine, home, catalog, StoredSets(stored.rows), [(key, 1.0) for key in keys]).from_disk(
            "bf16"
        )
        first = ours.first_token(prompt, keys)
        ours.execute(prompt, keys, 4)
    for layer, (layer_keys, layer_values) in enumerate(kv):
        end = prompt.tokens - len(prompt.tail)
        torch.testing.assert_close(layer_keys[0], engine.executor.arena.keys[layer][:, :end], rtol=1e-5, atol=1e-5)
        assert torch.equal(layer_values[0], engine.executor.arena.values[layer][:, :end])
    answer = turborag.answer(prompt, kv, 4)
    assert answer == turborag.answer(prompt, kv, 4)  # the cache of one answer is not that of the next
    assert turborag.first_token(prompt, keys).token == first.token == answer[0]
    log_probs = turborag.log_probs(prompt, kv, answer[:3])
    assert tuple(log_probs.argmax(-1).tolist()) == answer
    assert divergence(answer_log_probs(engine.executor, prompt, answer[:3]), log_probs).mean_kl < 1e-6
    config: Any = engine.model.backbone.config
    assert config._attn_implementation == engine.model.attention.implementation


def test_fewer_passes_rotate_alike() -> None:
    keys, cos, sin = torch.randn(2, 5, 16), torch.randn(5, 16), torch.randn(5, 16)
    torch.testing.assert_close(_rotated(keys, cos, sin), rotate(keys, cos, sin), rtol=1e-6, atol=1e-6)
    narrow = keys.to(torch.bfloat16)
    torch.testing.assert_close(_rotated(narrow, cos, sin), rotate(narrow.float(), cos, sin), rtol=1e-6, atol=1e-6)
