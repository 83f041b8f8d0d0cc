"""The embedding model: windows, pooling, batching, control tokens, fingerprint, refusals."""

import json
import shutil
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from transformers import AutoModel, AutoTokenizer

from models.embedding import EmbeddingModel, WindowSettings
from models.embedding.windows import window_bounds
from models.errors import ModelMissing, ModelRefused
from tests.models.tiny_encoder import save_tiny_encoder

WORDS = [f"w{number}" for number in range(200)]


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random two-layer BERT with 200 words, as a folder."""
    words = ["[MASK]", "[", "]", "sep", *WORDS]
    return save_tiny_encoder(tmp_path_factory.mktemp("tiny-bert"), words, positions=64)


@pytest.fixture(scope="module")
def embedding(tiny: Path) -> EmbeddingModel:
    return EmbeddingModel.load(tiny, settings=WindowSettings(window_pieces=16, overlap_pieces=4, batch_pieces=40))


def copy_of(folder: Path, target: Path) -> Path:
    shutil.copytree(folder, target)
    return target


def text_of(count: int, first: int = 0) -> str:
    return " ".join(WORDS[(first + number) % len(WORDS)] for number in range(count))


@given(st.integers(0, 2000), st.integers(2, 260), st.data())
def test_windows_cover_the_text(pieces: int, limit: int, data: st.DataObject) -> None:
    overlap = data.draw(st.integers(0, limit - 1))
    bounds = window_bounds(pieces, limit, overlap)
    assert bounds[0][0] == 0
    assert bounds[-1][1] == pieces
    assert all(end - start <= limit for start, end in bounds)
    assert all(after[0] > before[0] for before, after in pairwise(bounds))
    assert all(before[1] - after[0] >= overlap for before, after in pairwise(bounds))
    assert len({end - start for start, end in bounds}) == 1


def test_windows_are_no_more_than_needed() -> None:
    assert window_bounds(14, 14, 4) == [(0, 14)]
    assert window_bounds(15, 14, 4) == [(0, 10), (5, 15)]
    assert window_bounds(24, 14, 4) == [(0, 14), (10, 24)]
    assert len(window_bounds(25, 14, 4)) == 3


def test_equals_transformers_with_mean_pooling(tiny: Path, embedding: EmbeddingModel) -> None:
    model, tokenizer = AutoModel.from_pretrained(tiny).eval(), AutoTokenizer.from_pretrained(tiny)
    for text in (text_of(3), text_of(9, 20), ""):
        with torch.inference_mode():
            hidden = model(**tokenizer(text, return_tensors="pt")).last_hidden_state[0]
        expected = torch.nn.functional.normalize(hidden.mean(dim=0), dim=0).numpy()
        np.testing.assert_allclose(embedding.embed_question(text), expected, atol=1e-5)
        np.testing.assert_allclose(embedding.embed_windows([text])[0], expected[None], atol=1e-5)


def test_batching_and_padding_change_nothing(embedding: EmbeddingModel) -> None:
    texts = [text_of(count, 7 * count) for count in (1, 40, 0, 5, 12, 13, 33, 2, 9)]
    together = embedding.embed_windows(texts)
    assert [len(vectors) for vectors in together] == [1, 4, 1, 1, 1, 1, 3, 1, 1]
    for text, vectors in zip(texts, together, strict=True):
        assert vectors.dtype == np.float32
        assert vectors.shape[1] == embedding.dimensions
        np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
        np.testing.assert_allclose(vectors, embedding.embed_windows([text])[0], atol=1e-5)
    assert embedding.embed_windows([]) == []


def test_every_window_is_the_embedding_of_its_words(embedding: EmbeddingModel) -> None:
    vectors = embedding.embed_windows([text_of(24)])[0]  # 14 words fit beside [CLS] and [SEP]: w0-w13, w10-w23
    np.testing.assert_allclose(vectors[0], embedding.embed_question(text_of(14)), atol=1e-5)
    np.testing.assert_allclose(vectors[1], embedding.embed_question(text_of(14, 10)), atol=1e-5)


def test_a_control_token_in_a_text_stays_text(embedding: EmbeddingModel) -> None:
    written = embedding.embed_question("w1 [SEP] w2")
    np.testing.assert_allclose(written, embedding.embed_question("w1 [ sep ] w2"), atol=1e-5)


@pytest.mark.parametrize("text", ["", " \n", "\ud800 w1", "\x00", "🦆" * 50, text_of(500)])
def test_any_text_has_a_vector(embedding: EmbeddingModel, text: str) -> None:
    assert np.isfinite(embedding.embed_question(text)).all()
    assert all(np.isfinite(vectors).all() and len(vectors) for vectors in embedding.embed_windows([text, text]))


def test_threads_get_the_same_vectors(embedding: EmbeddingModel) -> None:
    texts = [text_of(count % 30, count) for count in range(40)]
    alone = [embedding.embed_question(text) for text in texts]
    with ThreadPoolExecutor(4) as threads:
        together = list(threads.map(embedding.embed_question, texts))
    np.testing.assert_allclose(np.stack(together), np.stack(alone), atol=1e-5)


def test_fingerprint_follows_what_vectors_depend_on(tiny: Path, tmp_path: Path) -> None:
    first = EmbeddingModel.load(tiny).fingerprint
    assert EmbeddingModel.load(copy_of(tiny, tmp_path / "elsewhere")).fingerprint == first
    others = {first, EmbeddingModel.load(tiny, settings=WindowSettings(32, 4)).fingerprint}
    others.add(EmbeddingModel.load(tiny, settings=WindowSettings(128, 2)).fingerprint)

    weights = copy_of(tiny, tmp_path / "weights") / "model.safetensors"
    tensors = load_file(weights)
    tensors["embeddings.word_embeddings.weight"][50, 3] += 1e-3
    save_file(tensors, weights, metadata={"format": "pt"})
    others.add(EmbeddingModel.load(weights.parent).fingerprint)

    tokenizer = copy_of(tiny, tmp_path / "tokenizer") / "tokenizer.json"
    tokenizer.write_text(tokenizer.read_text().replace('"lowercase": true', '"lowercase": false'))
    others.add(EmbeddingModel.load(tokenizer.parent).fingerprint)

    pooling = copy_of(tiny, tmp_path / "pooling") / "1_Pooling" / "config.json"
    pooling.parent.mkdir()
    pooling.write_text(json.dumps({"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}))
    others.add(EmbeddingModel.load(pooling.parents[1]).fingerprint)
    assert len(others) == 6


def test_cls_pooling_where_the_folder_asks_for_it(tiny: Path, tmp_path: Path) -> None:
    folder = copy_of(tiny, tmp_path / "cls")
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text(json.dumps({"pooling_mode_cls_token": True}))
    with torch.inference_mode():
        inputs = AutoTokenizer.from_pretrained(tiny)("w1 w2", return_tensors="pt")
        first = AutoModel.from_pretrained(tiny).eval()(**inputs).last_hidden_state[0, 0]
    expected = torch.nn.functional.normalize(first, dim=0).numpy()
    np.testing.assert_allclose(EmbeddingModel.load(folder).embed_question("w1 w2"), expected, atol=1e-5)


@pytest.mark.parametrize(
    ("name", "content", "error", "words"),
    [
        ("config.json", None, ModelMissing, "no embedding model"),
        ("model.safetensors", None, ModelMissing, "weights"),
        ("config.json", '{"model_type": "llama"}', ModelRefused, "llama"),
        ("config.json", '{"model_type": "t5"}', ModelRefused, "t5"),
        ("config.json", "{", ModelRefused, "config.json"),
        ("config.json", "[]", ModelRefused, "config.json"),
        ("model.safetensors", "torn", ModelRefused, "cannot be loaded"),
        ("tokenizer.json", "torn", ModelRefused, "tokenizer.json"),
        ("modules.json", '[{"type": "sentence_transformers.models.Dense"}]', ModelRefused, "Dense"),
        ("1_Pooling/config.json", '{"pooling_mode_max_tokens": true}', ModelRefused, "max_tokens"),
    ],
)
def test_a_bad_folder_is_one_clear_line(
    tiny: Path, tmp_path: Path, name: str, content: str | None, error: type[Exception], words: str
) -> None:
    folder = copy_of(tiny, tmp_path / "bad")
    if content is None:
        (folder / name).unlink()
    else:
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(content)
    with pytest.raises(error, match=words) as caught:
        EmbeddingModel.load(folder)
    assert "\n" not in str(caught.value)
    assert ":" in str(caught.value)


def test_weights_that_lack_a_tensor_are_refused(tiny: Path, tmp_path: Path) -> None:
    weights = copy_of(tiny, tmp_path / "partly") / "model.safetensors"
    tensors = load_file(weights)
    del tensors["encoder.layer.1.attention.self.key.weight"]
    save_file(tensors, weights, metadata={"format": "pt"})
    with pytest.raises(ModelRefused, match="lacks 1 weights"):
        EmbeddingModel.load(weights.parent)


def test_a_missing_folder_is_missing(tmp_path: Path) -> None:
    with pytest.raises(ModelMissing, match="nowhere"):
        EmbeddingModel.load(tmp_path / "nowhere")


@pytest.mark.parametrize(("window", "overlap"), [(16, 8), (16, -1), (0, 0)])
def test_windows_that_cannot_advance_are_refused(window: int, overlap: int) -> None:
    with pytest.raises(ValueError, match="overlap_pieces"):
        WindowSettings(window, overlap)
