"""Reading chunks: the same ids give the same bytes, whatever was read before and in whichever process."""

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from models.errors import PromptTooLong
from models.loading import LanguageModel
from models.prompt import PromptTemplate
from models.reader import CONTEXTS, ChunkReader
from storage.codecs import CODECS
from storage.errors import BlockRefused, StorageError
from tests.models.conftest import load
from tests.models.tiny import WINDOW, save_tiny_model

ROOT = Path(__file__).resolve().parents[2]
TEXTS = ["The pump was serviced in May.", "Rust ate the valve; Ines replaced it on Monday.", "x", "word " * 150]
AGAIN = """
import sys
from pathlib import Path
from tests.models.test_reader import digests
print("\\n".join(digests(Path(sys.argv[1]))))
"""


def reader_of(model: LanguageModel, context: str = "head", codec: str = "int8") -> ChunkReader:
    return ChunkReader(model, PromptTemplate(model.tokenizer, model.name).head, context, codec)


def ids_of(model: LanguageModel, text: str) -> np.ndarray:
    return PromptTemplate(model.tokenizer, model.name).chunk("Note", text)


def digest(reader: ChunkReader, ids: np.ndarray) -> str:
    block = reader.block(ids, "a" * 64, "f" * 64, "papers")
    return hashlib.sha256(block.data.tobytes() + repr(block.header).encode()).hexdigest()


def digests(folder: Path) -> list[str]:
    """Of every text, context and codec."""
    model = load(folder)
    readers = [reader_of(model, context, codec) for context in CONTEXTS for codec in CODECS]
    return [digest(reader, ids_of(model, text)) for reader in readers for text in TEXTS]


@pytest.fixture(scope="module", params=["float32", "bfloat16"])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("reader") / "model"
    if request.param == "float32":
        return save_tiny_model(target)
    saved = save_tiny_model(target)
    config = saved / "config.json"
    config.write_text(config.read_text().replace('"float32"', '"bfloat16"'))
    return saved


@pytest.fixture(scope="module")
def model(folder: Path) -> LanguageModel:
    return load(folder)


def test_a_block_computed_again_is_byte_equal(folder: Path) -> None:
    first = digests(folder)
    assert len(set(first)) == len(first)
    assert digests(folder) == first


@pytest.mark.parametrize("folder", ["bfloat16"], indirect=True)
def test_also_in_a_new_process(folder: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", AGAIN, str(folder)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": str(torch.get_num_threads())},
        capture_output=True,
        check=False,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == digests(folder)


@pytest.mark.parametrize("context", CONTEXTS)
def test_what_was_read_before_leaves_no_trace(model: LanguageModel, context: str) -> None:
    """Longer and shorter chunks through the same scratch memory, in another order."""
    chunks = [ids_of(model, text) for text in TEXTS]
    fresh = [digest(reader_of(model, context), ids) for ids in chunks]
    reader = reader_of(model, context)
    for order in ((3, 0, 2, 1), (2, 2, 1, 0, 3, 0)):
        for which in order:
            assert digest(reader, chunks[which]) == fresh[which]


def test_the_context_decides_what_a_chunk_sees(model: LanguageModel) -> None:
    ids = ids_of(model, TEXTS[1])
    (head_keys, head_values), (keys, values) = (reader_of(model, context).read(ids) for context in ("head", "alone"))
    assert head_keys.shape == keys.shape == (3, 2, len(ids), 16)
    # The first layer has attended to nothing yet: there, keys before rotary do not even depend on the position.
    torch.testing.assert_close(head_keys[0], keys[0])
    torch.testing.assert_close(head_values[0], values[0])
    assert float((head_keys[1:] - keys[1:]).abs().max()) > 0.1
    assert float((head_values[1:] - values[1:]).abs().max()) > 0.1


def test_a_block_is_what_was_read(model: LanguageModel) -> None:
    ids = ids_of(model, TEXTS[0])
    block = reader_of(model, codec="f32").block(ids, "a" * 64, "f" * 64, "papers")
    keys, values = reader_of(model).read(ids)
    assert keys.dtype == model.dtype
    found_keys, found_values = block.decode()
    assert torch.equal(found_keys, keys.float())
    assert torch.equal(found_values, values.float())
    header = block.header
    assert (header.context, header.tokens, header.geometry) == ("head", len(ids), model.geometry)
    assert (header.key_codec, header.value_codec, header.generation) == ("f32", "f32", 0)


@pytest.mark.parametrize("context", CONTEXTS)
def test_a_chunk_that_fills_the_window_is_read_and_one_more_token_is_not(model: LanguageModel, context: str) -> None:
    reader = reader_of(model, context)
    room = WINDOW - (reader.head_tokens if context == "head" else 0)
    ids = np.full(room + 1, 5, dtype=np.int32)
    with pytest.raises(PromptTooLong, match=f"{WINDOW + 1} tokens .* window of {WINDOW}"):
        reader.read(ids)
    keys, _ = reader.read(ids[:room])
    assert keys.shape[2] == room


def test_nothing_to_read_is_refused(model: LanguageModel) -> None:
    for context in CONTEXTS:
        with pytest.raises(BlockRefused, match="empty"):
            reader_of(model, context).block(np.empty(0, np.int32), "a" * 64, "f" * 64, "papers")


def test_unknown_contexts_and_codecs_are_refused_before_any_work(model: LanguageModel) -> None:
    with pytest.raises(ValueError, match="neighbours"):
        reader_of(model, "neighbours")
    with pytest.raises(StorageError, match="zip"):
        reader_of(model, codec="zip")


def test_no_hooks_are_left_on_the_model(model: LanguageModel) -> None:
    reader = reader_of(model)
    with pytest.raises(PromptTooLong):
        reader.read(np.zeros(WINDOW + 1, np.int32))
    with pytest.raises(IndexError):
        reader.read(np.array([10**6], np.int32))
    reader.read(ids_of(model, TEXTS[0]))
    assert not any(module._forward_hooks for module in model.backbone.modules())
