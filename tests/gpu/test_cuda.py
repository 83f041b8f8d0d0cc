"""What only a CUDA device can show; `python -m pytest tests/gpu` there, skipped elsewhere."""

from pathlib import Path

import pytest
import torch

from models.executor import ComputedSource, Executor
from models.loading import LanguageModel, load_language_model
from models.placing import choose_placers
from models.reader import ChunkReader
from models.strategies import find_strategy
from tests.models.conftest import sample_prompt
from tests.models.tiny import save_tiny_model

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device on this computer"),
]


def logits(model: LanguageModel, strategy: str, chunks: int, codec: str = "f32") -> torch.Tensor:
    prompt = sample_prompt(model, chunks)
    reader = ChunkReader(model, prompt.head, "head", codec)
    executor = Executor(reader, choose_placers())
    try:
        plan = find_strategy(strategy).plan(prompt)
        return executor.execute(prompt, plan, ComputedSource(reader, prompt.chunks)).logits.cpu()
    finally:
        executor.close()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny_model(tmp_path_factory.mktemp("gpu") / "model", "qwen3", "llama3")


@pytest.mark.parametrize("strategy", ["full", "reuse"])
def test_cuda_equals_cpu(folder: Path, strategy: str) -> None:
    torch.backends.cuda.matmul.allow_tf32 = False
    on_gpu = logits(load_language_model(folder, torch.device("cuda")), strategy, 3)
    on_cpu = logits(load_language_model(folder, torch.device("cpu")), strategy, 3)
    assert float((on_gpu - on_cpu).abs().max()) < 1e-3


def test_one_chunk_reused_equals_full(folder: Path) -> None:
    torch.backends.cuda.matmul.allow_tf32 = False
    model = load_language_model(folder, torch.device("cuda"))
    assert float((logits(model, "reuse", 1) - logits(model, "full", 1)).abs().max()) < 1e-3


def test_int8_blocks_are_placed_on_the_device(folder: Path) -> None:
    model = load_language_model(folder, torch.device("cuda"))
    exact, coded = logits(model, "reuse", 3), logits(model, "reuse", 3, "int8")
    assert float((exact - coded).abs().max()) < 0.5


@pytest.mark.parametrize("weights", ["int8", "int4"])
def test_quantised_weights_answer(folder: Path, weights: str) -> None:
    model = load_language_model(folder, torch.device("cuda"), weights)
    assert bool(torch.isfinite(logits(model, "reuse", 3)).all())
