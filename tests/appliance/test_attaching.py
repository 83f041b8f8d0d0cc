"""Questions about attached files: the places they get, what is kept of reading them, what is refused."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from appliance.errors import ApplianceError, UnknownDocument
from appliance.retrieval import Retriever
from appliance.retrieval.attached import with_attached
from appliance.service import Answer, Appliance
from storage.home import Home
from storage.lock import HomeLock
from tests.appliance.fixtures import QUESTION, Cli
from tests.appliance.stored import snapshot
from tests.appliance.test_retrieval import FakeCatalog, Fixed, ids, unit_rows

FAR = (
    "Zebras zigzag over dry grass at dusk. A zoo in Zagreb buzzes with jazz.\n\n"
    "Fizzy lemon squash fizzles in a frozen jug, and dizzy quokkas doze beside it.\n"
)


class TwoDocuments(FakeCatalog):
    """Chunks 0 to 39 are "near", best first; 40 to 44 are "far", in collection 1."""

    def __init__(self, question: NDArray[np.float32], words: list[tuple[int, float]] | None = None) -> None:
        across = unit_rows(1, seed=3)[0]
        across -= (across @ question) * question
        across /= np.linalg.norm(across)
        cosines = [0.9 - 0.01 * number for number in range(40)] + [0.1 + 0.01 * number for number in range(5)]
        rows = [cosine * question + (1 - cosine**2) ** 0.5 * across for cosine in cosines]
        super().__init__(list(range(45)), np.asarray(rows, dtype=np.float32), words)

    def chunk_ids_of(self, collection_id: int, document_id: str) -> list[int]:
        known = {(1, "near"): list(range(40)), (1, "far"): list(range(40, 45))}
        return known.get((collection_id, document_id), [])


@pytest.mark.parametrize(
    ("top_k", "documents", "expected"),
    [
        (4, (), [0, 1, 2, 3]),
        (4, ("far",), [0, 1, 44, 43]),
        (5, ("far",), [0, 1, 44, 43, 42]),
        (1, ("far",), [44]),
        (20, ("far",), [*range(15), 44, 43, 42, 41, 40]),  # all there are
        (4, ("near",), [0, 1, 2, 3]),
        (4, ("far", "near", "far"), [0, 1, 2, 3]),
    ],
)
@pytest.mark.parametrize("method", ["both", "vectors"])
def test_half_of_the_places_go_to_the_attached(
    top_k: int, documents: tuple[str, ...], expected: list[int], method: str
) -> None:
    question = unit_rows(1)[0]
    retriever = Retriever(TwoDocuments(question), Fixed(question))
    hits = retriever.search(1, "?", top_k, method, documents)
    assert ids(hits) == expected
    assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)
    assert len(set(ids(hits))) == len(hits) == top_k


def test_words_choose_among_the_attached_too() -> None:
    question = unit_rows(1)[0]
    retriever = Retriever(TwoDocuments(question, [(40, 30.0), (7, 20.0)]), Fixed(question))
    assert ids(retriever.search(1, "?", 2, documents=["far"])) == [7, 40]


def test_a_document_beyond_the_depth_of_both_rankings_is_found() -> None:
    question = unit_rows(1)[0]
    catalog = TwoDocuments(question)
    hits = Retriever(catalog, Fixed(question)).search(1, "?", 4, documents=["far"])
    assert [hit.vector_rank for hit in hits] == [1, 2, 41, 42]
    catalog.chunk_ids, catalog.matrix = list(range(245)), np.concatenate([catalog.matrix, unit_rows(200, seed=5)])
    catalog.version += 1
    beyond = Retriever(catalog, Fixed(question)).search(1, "?", 4, documents=["far"])
    exact = catalog.matrix @ question
    np.testing.assert_allclose([hit.score for hit in beyond], exact[[0, 1, 44, 43]], atol=1e-6)
    assert ids(beyond) == [0, 1, 44, 43]
    assert beyond[-1].vector_rank is None


def test_what_cannot_be_attached() -> None:
    retriever = Retriever(TwoDocuments(unit_rows(1)[0]), Fixed(unit_rows(1)[0]))
    for collection, document in ((1, "ghost"), (2, "far"), (1, ""), (1, "x" * 5000)):
        with pytest.raises(UnknownDocument, match="attach it again, or ask without") as refused:
            retriever.search(collection, "?", 4, documents=[document])
        assert len(str(refused.value)) < 300
    with pytest.raises(ValueError, match="vectors, both"):
        retriever.search(1, "?", 4, "words", ["far"])
    assert with_attached([], {1}, 4) == []


def ask(appliance: Appliance, *documents: str, **options: Any) -> Answer:
    chosen = {"strategy": "reuse", "top_k": 4, "max_new_tokens": 4, **options}
    return appliance.answer(QUESTION, documents=documents, **chosen)


def titles(answer: Answer) -> list[str]:
    return [source.document for source in answer.sources]


@pytest.fixture
def far(tmp_path: Path) -> Path:
    (tmp_path / "far.txt").write_text(FAR)
    return tmp_path / "far.txt"


def test_an_attached_file_is_forced_in_and_reused_from_then_on(
    appliance: Appliance, sample_files: Path, far: Path, reads: list[str]
) -> None:
    appliance.ingest([sample_files])
    report = appliance.attach([far])
    assert [(entry.state, entry.error) for entry in report.documents] == [("ready", None)]
    assert (report.document_ids, report.kv_bytes) == ((appliance.find_document("far.txt"),), 0)
    assert appliance.catalog.document(report.document_ids[0]).kv == "idle"
    reads.clear()
    assert titles(ask(appliance, top_k=2)).count("far") == 0, "by itself it is not what the question is about"
    first, second = (ask(appliance, *report.document_ids) for _ in range(2))
    forced = titles(first).count("far")
    assert forced >= 2
    assert first.tiers["computed"] == len(reads) == forced
    assert "computed" not in second.tiers
    assert second.tokens["reused"] > first.tokens["reused"]
    assert second.answer_ids == first.answer_ids
    assert appliance.store.leases_out == 0


def test_one_answer_by_auto_leaves_the_blocks_as_well(appliance: Appliance, sample_files: Path, far: Path) -> None:
    appliance.ingest([sample_files])
    document = appliance.attach([far]).document_ids[0]
    ask(appliance, document, strategy="auto", top_k=2)
    assert 1 <= appliance.catalog.document_kv(document).blocks < appliance.catalog.document(document).chunks
    assert ask(appliance, document, top_k=2).tiers.get("computed", 0) == 0


def test_attaching_again_names_the_same_document_and_keeps_its_policy(
    appliance: Appliance, far: Path, tmp_path: Path
) -> None:
    first = appliance.ingest([far], kv="off")
    copy = tmp_path / "copy.txt"
    copy.write_text(FAR)
    again = appliance.attach([far, copy])
    assert [entry.state for entry in again.documents] == ["unchanged", "unchanged"]
    assert again.document_ids == first.document_ids
    assert appliance.catalog.document(first.document_ids[0]).kv == "off"
    assert appliance.ingest([far], kv="idle").document_ids == first.document_ids
    assert appliance.catalog.document(first.document_ids[0]).kv == "idle"


def test_documents_that_are_not_there_are_refused(appliance: Appliance, sample_files: Path, far: Path) -> None:
    appliance.ingest([sample_files])
    elsewhere = appliance.attach([far], "elsewhere").document_ids[0]
    gone = appliance.find_document("rules.md")
    appliance.remove(gone)
    for document in ("ghost", elsewhere, gone):
        with pytest.raises(ApplianceError, match="the collection holds no document") as refused:
            ask(appliance, document)
        assert "\n" not in str(refused.value)
    assert titles(ask(appliance, elsewhere, collection="elsewhere"))[0] == "far"
    assert appliance.store.leases_out == 0


def test_bad_files_are_told_and_the_others_are_attached(appliance: Appliance, far: Path, tmp_path: Path) -> None:
    (tmp_path / "empty.txt").write_text("")
    report = appliance.attach([far, tmp_path / "empty.txt", tmp_path / "missing.txt"])
    assert {Path(entry.path).name: entry.id is not None for entry in report.documents} == {
        "empty.txt": False,
        "far.txt": True,
        "missing.txt": False,
    }
    assert len(report.document_ids) == 1


def test_the_command_line_attaches_and_asks(cli: Cli, sample_files: Path, far: Path) -> None:
    cli("ingest", sample_files)
    chosen = ("ask", QUESTION, "--top-k", 2, "--max-new-tokens", 4, "--strategy", "reuse", "--json")
    assert "far" not in [source["document"] for source in cli(*chosen).json["sources"]]
    found = cli(*chosen, "--attach", far).json
    assert "far" in [source["document"] for source in found["sources"]]
    assert found["tiers"]["computed"] >= 1
    again = cli(*chosen, "--attach", far).json
    assert again["tiers"]["computed"] == 0
    assert sum(document["path"] == str(far) for document in cli("list", "--json").json["documents"]) == 1


def test_the_command_line_refuses(cli: Cli, sample_files: Path, appliance: Appliance, tmp_path: Path) -> None:
    settings = replace(appliance.settings)
    appliance.close()
    cli("ingest", sample_files)
    (tmp_path / "empty.txt").write_text("")
    before = snapshot(settings.home)
    for arguments, words in (
        (("--attach", tmp_path / "empty.txt"), "empty.txt is empty"),
        (("--attach", tmp_path / "missing.txt"), "missing.txt"),
        (("--attach", tmp_path / "missing.txt", "--top-k", 0), "top-k is 0"),
    ):
        ran = cli("ask", QUESTION, *arguments)
        assert (ran.code, ran.out, len(ran.error_lines)) == (1, "", 1), ran.err
        assert words in ran.error_lines[0]
    assert cli("ask", QUESTION, "--attach", sample_files).code == 2
    lock = HomeLock(Home(settings.home))
    lock.acquire()
    try:
        ran = cli("ask", QUESTION, "--attach", sample_files / "pump.txt")
    finally:
        lock.release()
    assert (ran.code, ran.out, len(ran.error_lines)) == (1, "", 1)
    assert "in use by" in ran.error_lines[0]
    assert snapshot(settings.home) == before
