from pathlib import Path

import pytest
import torch

from models.executor import ComputedSource, Execution, Executor
from models.loading import LanguageModel, load_language_model
from models.placing import choose_placers
from models.prompt import Prompt, PromptTemplate
from models.reader import ChunkReader
from models.strategies import find_strategy
from tests.models.tiny import ARCHITECTURES, ROTARY, save_tiny_model

ALL_KINDS = [(architecture, rotary) for architecture in ARCHITECTURES for rotary in ROTARY]


@pytest.fixture(scope="session", params=ALL_KINDS, ids=lambda kind: f"{kind[0]}-{kind[1]}")
def tiny_folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    architecture, rotary = request.param
    return save_tiny_model(tmp_path_factory.mktemp(f"{architecture}-{rotary}") / "model", architecture, rotary)


@pytest.fixture(scope="session")
def llama_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny_model(tmp_path_factory.mktemp("llama") / "model")


def load(folder: Path) -> LanguageModel:
    return load_language_model(folder, torch.device("cpu"))


def run(model: LanguageModel, prompt: Prompt, strategy: str, context: str = "head", placer: str = "auto") -> Execution:
    """One execution over freshly computed float32 blocks."""
    reader = ChunkReader(model, prompt.head, context, "f32")
    executor = Executor(reader, choose_placers(placer))
    try:
        return executor.execute(prompt, find_strategy(strategy).plan(prompt), ComputedSource(reader, prompt.chunks))
    finally:
        executor.close()


def sample_prompt(model: LanguageModel, chunks: int) -> Prompt:
    template = PromptTemplate(model.tokenizer, model.name)
    texts = [
        "The pump was serviced in May.",
        "Rust ate the valve; Ines replaced it on Monday.",
        "Nobody paid the bill.",
        "The spare valve lies in the blue box.",
    ]
    ids = [template.chunk(f"Note {index}", text) for index, text in enumerate(texts[:chunks])]
    return template.prompt(ids, "Who replaced the valve?")
