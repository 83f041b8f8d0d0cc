"""Retrieval: fusion, the vector index, the scope, freshness, ties, threads; over a fake and over the real catalog."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from appliance.retrieval import METHODS, Hit, RetrievalSettings, Retriever, text_to_embed
from appliance.retrieval.fusion import fuse_ranks, fuse_scores
from storage.catalog import Catalog, NewChunk, NewDocument
from storage.errors import EmbeddingMismatch
from storage.home import Home
from tests.appliance.bench_embedding import DIMENSIONS, BagOfWords


class FakeCatalog:
    """One collection (id 1) of given vectors and word hits; counts how often its vectors are read."""

    def __init__(
        self, chunk_ids: list[int], vectors: NDArray[np.float32], words: list[tuple[int, float]] | None = None
    ) -> None:
        self.chunk_ids, self.matrix, self.words = chunk_ids, vectors, words or []
        self.version = 1
        self.reads = 0

    def vectors(self, collection_id: int) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        self.reads += 1
        return np.asarray(self.chunk_ids, dtype=np.int64), self.matrix

    def vectors_version(self, collection_id: int) -> int:
        return self.version

    def search_words(self, collection_id: int, question: str, limit: int) -> list[tuple[int, float]]:
        return self.words[:limit]

    def chunk_ids_of(self, collection_id: int, document_id: str) -> list[int]:
        return []


class Fixed(BagOfWords):
    """Every question is the same vector."""

    def __init__(self, vector: NDArray[np.float32]) -> None:
        super().__init__()
        self.vector = vector

    def embed_question(self, text: str) -> NDArray[np.float32]:
        return self.vector


def unit_rows(count: int, seed: int = 0) -> NDArray[np.float32]:
    rows = np.random.default_rng(seed).standard_normal((count, DIMENSIONS)).astype(np.float32)
    return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True), dtype=np.float32)


def ids(hits: list[Hit]) -> list[int]:
    return [hit.chunk_id for hit in hits]


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[Catalog]:
    home = Home(tmp_path / "home")
    home.create()
    with Catalog.open(home) as opened:
        yield opened


def publish(catalog: Catalog, collection: str, title: str, *texts: str) -> list[int]:
    """The chunk ids of a new document."""
    embedding = BagOfWords()
    row = catalog.ensure_collection(collection, embedding.fingerprint, embedding.dimensions, 256)
    windows = embedding.embed_windows([text_to_embed(title, text) for text in texts])
    chunks = tuple(
        NewChunk(number, None, 0, len(text), text, vectors)
        for number, (text, vectors) in enumerate(zip(texts, windows, strict=True))
    )
    name = f"{collection}-{title}"
    catalog.publish_document(NewDocument(name, row.id, title, "txt", name, 1, 0, "off", (), f"/{name}", 0, chunks))
    return [chunk.id for chunk in catalog.chunks_of(name)]


def test_a_chunk_scores_by_its_best_window() -> None:
    rows = unit_rows(400)
    owners = np.sort(np.random.default_rng(1).integers(0, 60, 400)).tolist()
    question = unit_rows(1, seed=9)[0]
    best: dict[int, float] = {}
    for owner, cosine in zip(owners, (rows @ question).tolist(), strict=True):
        best[owner] = max(best.get(owner, -2.0), cosine)
    expected = sorted(best, key=lambda owner: (-best[owner], owner))
    hits = Retriever(FakeCatalog(owners, rows), Fixed(question)).search(1, "?", len(expected), "vectors")
    assert ids(hits) == expected
    np.testing.assert_allclose([hit.score for hit in hits], [best[owner] for owner in expected], atol=1e-6)
    assert [hit.vector_rank for hit in hits] == list(range(1, len(expected) + 1))
    assert {hit.word_rank for hit in hits} == {None}


def test_one_chunk_of_very_many_windows_does_not_hide_the_others() -> None:
    question = unit_rows(1)[0]
    rows = np.concatenate([np.repeat(question[None], 3000, axis=0), unit_rows(5, seed=2)])
    retriever = Retriever(FakeCatalog([1] * 3000 + [2, 3, 4, 5, 6], rows), Fixed(question), RetrievalSettings(depth=3))
    hits = retriever.search(1, "?", 3, "vectors")
    assert ids(hits)[0] == 1
    assert len(set(ids(hits))) == 3


def test_equal_scores_come_in_order_of_chunk_id() -> None:
    question = unit_rows(1)[0]
    catalog = FakeCatalog([7, 3, 5, 9], np.repeat(question[None], 4, axis=0), [(9, 2.0), (3, 2.0), (5, 2.0)])
    retriever = Retriever(catalog, Fixed(question))
    assert ids(retriever.search(1, "?", 4, "vectors")) == [3, 5, 7, 9]
    assert ids(retriever.search(1, "?", 4, "both")) == [3, 5, 9, 7]
    assert ids(retriever.search(1, "?", 4, "words")) == [3, 5, 9]
    shallow = Retriever(catalog, Fixed(question), RetrievalSettings(depth=2))
    assert ids(shallow.search(1, "?", 2, "vectors")) == [3, 5]


def test_fusing_scores_by_hand() -> None:
    settings = RetrievalSettings(word_weight=0.5, word_doubt=30)
    known = {1: 0.8, 2: 0.7, 3: 0.1}
    hits = fuse_scores([(1, 0.8), (2, 0.7)], [(2, 20.0), (3, 10.0), (4, 5.0)], known.get, settings)
    assert [(hit.chunk_id, round(hit.score, 6)) for hit in hits] == [(2, 0.9), (1, 0.8), (3, 0.2), (4, 0.05)]
    assert [(hit.vector_rank, hit.word_rank) for hit in hits] == [(2, 1), (1, None), (None, 2), (None, 3)]


def test_fusing_ranks_by_hand() -> None:
    settings = RetrievalSettings(rank_constant=1, rank_vector_share=0.5)
    hits = fuse_ranks([(1, 0.8), (2, 0.7)], [(2, 20.0), (3, 10.0)], settings)
    assert [(hit.chunk_id, round(hit.score, 6)) for hit in hits] == [(2, 0.416667), (1, 0.25), (3, 0.166667)]


def test_a_chunk_found_by_words_alone_gets_its_cosine() -> None:
    rows = unit_rows(50)
    question = rows[0]
    last = int(np.argsort(-(rows @ question))[-1])
    catalog = FakeCatalog(list(range(50)), rows, [(last, 12.0)])
    settings = RetrievalSettings(depth=5, word_weight=9)
    found = Retriever(catalog, Fixed(question), settings).search(1, "?", 5)[0]
    assert found.chunk_id == last
    expected = float(rows[last] @ question) + settings.word_weight * 12 / (12 + settings.word_doubt)
    assert found.score == pytest.approx(expected, abs=1e-5)
    assert (found.vector_rank, found.word_rank) == (None, 1)


def test_words_find_a_name_and_vectors_find_it_too(catalog: Catalog) -> None:
    publish(catalog, "a", "Handbook", "Meals are paid up to 40 euros.", "Laptops are replaced every four years.")
    wanted = publish(catalog, "a", "Minutes", "The code word for the vault is xylophone.")
    retriever = Retriever(catalog, BagOfWords())
    collection = catalog.collection("a").id
    for method in METHODS:
        assert ids(retriever.search(collection, "Where is the xylophone code?", 1, method)) == wanted


def test_the_title_is_searched_with_the_text(catalog: Catalog) -> None:
    publish(catalog, "a", "Travel policy", "It ends after two years.")
    wanted = publish(catalog, "a", "Warranty", "It ends after two years.")
    hits = Retriever(catalog, BagOfWords()).search(catalog.collection("a").id, "warranty", 1, "vectors")
    assert ids(hits) == wanted


def test_another_collection_is_never_searched(catalog: Catalog) -> None:
    mine = publish(catalog, "mine", "Plain", "Nothing of interest is written here.")
    publish(catalog, "theirs", "Secret", "The secret launch date is the ninth of May.")
    retriever = Retriever(catalog, BagOfWords())
    for method in METHODS:
        hits = retriever.search(catalog.collection("mine").id, "the secret launch date", 10, method)
        assert set(ids(hits)) <= set(mine)


def test_what_is_published_is_found_and_what_is_deleted_is_gone_at_once(catalog: Catalog) -> None:
    publish(catalog, "a", "One", "Bees make honey.")
    retriever = Retriever(catalog, BagOfWords())
    collection = catalog.collection("a").id
    assert len(retriever.search(collection, "honey", 5)) == 1
    new = publish(catalog, "a", "Two", "Honey keeps for ever.")
    assert set(new) < set(ids(retriever.search(collection, "honey", 5)))
    catalog.begin_delete("a-Two")
    for method in METHODS:
        assert not set(new) & set(ids(retriever.search(collection, "honey", 5, method)))


def test_vectors_are_read_again_only_after_a_change() -> None:
    catalog = FakeCatalog([1, 2, 3], unit_rows(3))
    retriever = Retriever(catalog, BagOfWords())
    for _ in range(3):
        retriever.search(1, "a question", 2)
    assert catalog.reads == 1
    catalog.version += 1
    retriever.search(1, "a question", 2, "words")
    assert catalog.reads == 1
    retriever.search(1, "a question", 2)
    assert catalog.reads == 2
    retriever.forget(1)
    retriever.warm(1)
    assert catalog.reads == 3


def test_an_empty_collection_and_an_empty_question(catalog: Catalog) -> None:
    row = catalog.ensure_collection("empty", "bag-of-words", DIMENSIONS, 256)
    retriever = Retriever(catalog, BagOfWords())
    assert all(retriever.search(row.id, "anything", 4, method) == [] for method in METHODS)
    publish(catalog, "a", "One", "Bees make honey.")
    collection = catalog.collection("a").id
    for question in ("", "?!", '"', "NOT OR AND *", "🦆", "\x00", "a" * 100_000):
        for method in METHODS:
            assert len(retriever.search(collection, question, 4, method)) <= 1


def test_vectors_of_another_model_are_refused() -> None:
    catalog = FakeCatalog([1], np.ones((1, DIMENSIONS + 1), dtype=np.float32))
    with pytest.raises(EmbeddingMismatch, match="--embedding"):
        Retriever(catalog, BagOfWords()).search(1, "?", 1)


def test_bad_arguments_are_refused() -> None:
    retriever = Retriever(FakeCatalog([1], unit_rows(1)), BagOfWords())
    with pytest.raises(ValueError, match="vectors, words, both"):
        retriever.search(1, "?", 1, "magic")
    with pytest.raises(ValueError, match="top_k"):
        retriever.search(1, "?", 0)
    with pytest.raises(ValueError, match="depth"):
        RetrievalSettings(depth=0)
    with pytest.raises(ValueError, match="word_doubt"):
        RetrievalSettings(word_doubt=0)
    with pytest.raises(ValueError, match="rank_vector_share"):
        RetrievalSettings(rank_vector_share=2)


def test_more_hits_than_the_depth_can_be_asked_for() -> None:
    retriever = Retriever(FakeCatalog(list(range(30)), unit_rows(30)), BagOfWords(), RetrievalSettings(depth=2))
    assert len(retriever.search(1, "a question", 20)) == 20


def test_many_threads_get_what_one_gets(catalog: Catalog) -> None:
    for number in range(30):
        publish(catalog, "a", f"Paper {number}", f"Machine {number} weighs {number * 3} kilos.", "It is painted blue.")
    retriever = Retriever(catalog, BagOfWords())
    collection = catalog.collection("a").id
    questions = [f"How heavy is machine {number}?" for number in range(30)]
    alone = [ids(retriever.search(collection, question, 5)) for question in questions]
    retriever.forget(collection)
    with ThreadPoolExecutor(6) as threads:
        together = list(threads.map(lambda question: ids(retriever.search(collection, question, 5)), questions))
    assert together == alone


def test_searching_leaves_torch_its_threads() -> None:
    before = torch.get_num_threads()
    Retriever(FakeCatalog([1, 2], unit_rows(2)), BagOfWords()).search(1, "a question", 1)
    assert torch.get_num_threads() == before


def test_what_is_embedded() -> None:
    assert text_to_embed("", "Text.") == "Text."
    assert text_to_embed("  A \n title ", "Text.") == "A title\nText."
    assert len(text_to_embed("x" * 5000, "Text.")) < 250
