"""The facade: opening, answering from every tier, settings, a second process, the words of every refusal."""

import os
import subprocess
import sys
import threading
from collections.abc import Generator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from appliance.errors import ApplianceError, NoDocuments, QuestionRefused, UnknownCollection, UnknownDocument
from appliance.service import Answer, AnswerEvent, AnswerFinished, AnswerStarted, AnswerText, Appliance
from appliance.settings import Settings
from tests.appliance.fixtures import QUESTION, save_tiny_embedding
from tests.appliance.stored import ready_blocks

ROOT = Path(__file__).resolve().parents[2]


def ask(appliance: Appliance, strategy: str = "reuse", top_k: int = 3) -> Answer:
    return appliance.answer(QUESTION, strategy=strategy, top_k=top_k, max_new_tokens=12)


def test_events_come_in_order_and_add_up(appliance: Appliance, sample_files: Path) -> None:
    appliance.ingest([sample_files])
    events = list(appliance.ask(QUESTION, top_k=2, max_new_tokens=12))
    started, finished = events[0], events[-1]
    assert isinstance(started, AnswerStarted)
    assert isinstance(finished, AnswerFinished)
    assert all(isinstance(event, AnswerText) for event in events[1:-1])
    text = "".join(event.text for event in events if isinstance(event, AnswerText))
    assert text.strip() == finished.answer.answer
    assert started.sources == finished.answer.sources
    assert started.prompt_tokens == finished.answer.tokens["prompt"]


def test_every_tier_gives_the_same_answer(settings: Settings, sample_files: Path) -> None:
    with Appliance.open(settings) as first:
        first.ingest([sample_files])
    with Appliance.open(settings) as appliance:
        disk, memory = ask(appliance), ask(appliance)
        full, again = ask(appliance, "full"), ask(appliance, "full")
    assert disk.tiers == {"disk": 3}
    assert memory.tiers == {"pageable": 3}
    assert disk.answer_ids == memory.answer_ids != ()
    assert full.answer_ids == again.answer_ids != ()
    assert full.tokens["reused"] == 0
    assert full.tokens["computed"] == full.tokens["prompt"] == disk.tokens["prompt"]
    assert disk.tokens["reused"] + disk.tokens["computed"] == disk.tokens["prompt"]
    with Appliance.open(replace(settings, pageable_bytes=0)) as poor:
        assert ask(poor).answer_ids == ask(poor).answer_ids == disk.answer_ids
        assert ask(poor).tiers == {"disk": 3}


@pytest.mark.parametrize(("context", "codec"), [("alone", "f32"), ("head", "f32"), ("alone", "int8"), ("head", "bf16")])
def test_contexts_and_codecs(settings: Settings, sample_files: Path, context: str, codec: str) -> None:
    chosen = replace(settings, context=context, profile=codec)
    with Appliance.open(chosen) as appliance:
        report = appliance.ingest([sample_files])
        full, reuse = ask(appliance, "full", top_k=1), ask(appliance, top_k=1)
    assert not report.failed
    assert {(row.context, row.codec) for row in ready_blocks(settings.home)} == {(context, codec)}
    assert reuse.tiers == {"disk": 1}
    if (context, codec) == ("head", "f32"):
        assert reuse.answer_ids == full.answer_ids  # one chunk read after the head is exactly what `full` reads
    with Appliance.open(replace(chosen, direct_reads=False)) as buffered:
        assert ask(buffered, top_k=1).answer_ids == reuse.answer_ids


def test_placers_agree(settings: Settings, sample_files: Path) -> None:
    with Appliance.open(settings) as plain:
        plain.ingest([sample_files])
        expected = ask(plain).answer_ids
    with Appliance.open(replace(settings, placer="compiled")) as compiled:
        assert ask(compiled).answer_ids == expected


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"question": " \n"}, "the question is empty"),
        ({"question": "half \udcff"}, "not valid Unicode"),
        ({"question": "long " * 500}, "the model's window is 2048: shorten the question"),
        ({"strategy": "magic"}, "'magic'"),
        ({"top_k": 0}, "top-k is 0: choose 1 to"),
        ({"top_k": 65}, "top-k is 65: choose 1 to"),
        ({"max_new_tokens": 0}, "max-new-tokens is 0"),
        ({"max_new_tokens": 5000}, "5000 for the answer) and the model's window is 2048: lower --max-new-tokens"),
        ({"question": "y" * 600, "top_k": 64, "max_new_tokens": 690}, "is 2048: lower --top-k"),
        ({"collection": "nowhere"}, "collection 'nowhere' is unknown: choose one of default"),
    ],
)
def test_refused_questions_cost_nothing(
    appliance: Appliance, sample_files: Path, options: dict[str, object], words: str
) -> None:
    appliance.ingest([sample_files])
    before = ask(appliance)
    with pytest.raises(ApplianceError) as refused:
        appliance.answer(**{"question": QUESTION, **options})  # type: ignore[arg-type]
    assert words in str(refused.value)
    assert "\n" not in str(refused.value)
    assert ask(appliance).answer_ids == before.answer_ids


def test_refusals_have_their_types(appliance: Appliance, sample_files: Path, tmp_path: Path) -> None:
    with pytest.raises(NoDocuments, match="no documents yet"):
        appliance.answer(QUESTION)
    with pytest.raises(NoDocuments, match="no documents yet"):
        appliance.documents("default")
    assert appliance.ingest([tmp_path / "gone.txt"]).documents[0].state == "failed"
    with pytest.raises(NoDocuments, match="holds no documents yet"):
        appliance.answer(QUESTION)
    appliance.ingest([sample_files])
    with pytest.raises(UnknownCollection):
        appliance.documents("nowhere")
    with pytest.raises(QuestionRefused):
        appliance.answer("")
    for unknown in (appliance.remove, appliance.find_document):
        with pytest.raises(UnknownDocument, match="no document 'ghost'"):
            unknown("ghost")


def test_a_stopped_answer_leaves_the_model_to_the_next(appliance: Appliance, sample_files: Path) -> None:
    appliance.ingest([sample_files])
    stop = threading.Event()
    stop.set()
    assert appliance.answer(QUESTION, stop=stop).tokens["generated"] == 0
    with closing(cast("Generator[AnswerEvent, None, None]", appliance.ask(QUESTION, max_new_tokens=50))) as stream:
        next(stream)  # and then the page was closed
    assert ask(appliance).tokens["generated"] > 0


def test_another_embedding_model_is_refused(appliance: Appliance, sample_files: Path, tmp_path: Path) -> None:
    appliance.ingest([sample_files])
    expected = ask(appliance).answer_ids
    appliance.close()
    other = save_tiny_embedding(tmp_path / "other")
    (other / "sentence_bert_config.json").write_text('{"max_seq_length": 32}')  # same size, other vectors
    with Appliance.open(replace(appliance.settings, embedding=str(other))) as changed:
        for action in (lambda: changed.answer(QUESTION), lambda: changed.ingest([sample_files])):
            with pytest.raises(ApplianceError, match="begun with another embedding model"):
                action()
    with Appliance.open(appliance.settings) as same:
        assert ask(same).answer_ids == expected


@pytest.mark.parametrize("field", ["model", "embedding"])
def test_a_missing_model_is_one_line(settings: Settings, sample_files: Path, tmp_path: Path, field: str) -> None:
    with Appliance.open(settings) as appliance:
        appliance.ingest([sample_files])
    hollow = tmp_path / "hollow"
    hollow.mkdir()
    for folder in (tmp_path / "nothing", hollow):
        named: dict[str, Any] = {field: str(folder)}
        changed = replace(settings, **named)
        with (
            Appliance.open(changed) as appliance,
            pytest.raises(ApplianceError, match=str(folder)) as missing,
        ):
            appliance.answer(QUESTION)
        assert "\n" not in str(missing.value)
    with Appliance.open(settings) as appliance:
        assert ask(appliance).tiers == {"disk": 3}


HOLDER = "import sys; from storage.home import Home; from storage.lock import HomeLock; from pathlib import Path\n"
HOLDER += "HomeLock(Home(Path(sys.argv[1]))).acquire(); print('held', flush=True); sys.stdin.read()"


def test_a_second_process_reads_only(settings: Settings, sample_files: Path, reads: list[str]) -> None:
    with Appliance.open(settings) as appliance:
        appliance.ingest([sample_files], kv="off")
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(settings.home)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    try:
        assert holder.stdout is not None
        holder.stdout.readline()
        with pytest.raises(ApplianceError, match=f"in use by process {holder.pid}: stop it"):
            Appliance.open(settings)
        with Appliance.open(settings, read_only_if_busy=True) as reader:
            first, second = ask(reader), ask(reader)
            assert first.tiers == second.tiers == {"computed": 3}  # nothing is kept
            assert first.answer_ids == second.answer_ids
            assert first.warnings == ()
            assert [document.title for document in reader.documents()] != []
            with pytest.raises(ApplianceError, match="reading only"):
                reader.ingest([sample_files])
            reader.start_idle_work()  # does nothing here
    finally:
        holder.communicate(b"", timeout=20)
    assert len(reads) == 6
    assert ready_blocks(settings.home) == []
