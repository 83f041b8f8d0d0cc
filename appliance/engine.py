"""The loaded models of one process: language model, prompt template, reader, executor, embedding model."""

import gc
import json
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from appliance.profile import choose_profile
from appliance.settings import EMBEDDED_MODEL, Settings, models_folder
from models.embedding import EmbeddingModel
from models.executor import ComputedSource, Executor
from models.loading import (
    LanguageModel,
    choose_device,
    digest_fields,
    has_random_weights,
    load_language_model,
    load_random_model,
    resolve_model,
)
from models.placing import choose_placers
from models.prompt import CHUNK_TEMPLATE, PromptTemplate, starts_of, text_tokenizer
from models.reader import ChunkReader
from models.stepping import choose_steps
from models.strategies import find_strategy
from storage.blocks import block_key
from storage.direct_reads import probe_direct_reads
from storage.home import Home
from storage.profiles import Profile


@dataclass(frozen=True)
class Engine:
    """`fingerprint` names what every block's numbers depend on; `choices` says what was chosen here, and why.

    `profile` says which codec a block deserves; new blocks are encoded as the coldest.
    """

    model: LanguageModel
    template: PromptTemplate
    reader: ChunkReader
    executor: Executor
    embedding: EmbeddingModel
    fingerprint: str
    tokenizer: str
    profile: Profile
    direct_reads: bool
    choices: dict[str, str]

    def block_key(self, collection: str, token_ids: np.ndarray) -> str:
        """The key of a chunk's block in a collection."""
        return block_key(self.fingerprint, collection, "self", self.reader.context, token_ids)

    @property
    def kv_bytes_per_token(self) -> int:
        """Bytes a token takes on disk with this codec, headers and padding aside."""
        sample = 256
        keys_and_values = _encoded_bytes(self, sample)
        return -(-keys_and_values // sample)

    def warm(self) -> None:
        """Compile the placing loops and touch every path once, on a few tokens; the first question need not."""
        if self.executor.arena.capacity:
            return
        ids = self.template.chunk("warm", "up")
        prompt = self.template.prompt([ids], "Ready?")
        self.executor.execute(prompt, find_strategy("full").plan(prompt), ComputedSource(self.reader, prompt.chunks))
        for codec in {each.codec for each in self.profile.classes}:  # a GPU compiles a kernel for each pair
            source = ComputedSource(self.reader, prompt.chunks, codec)
            self.executor.execute(prompt, find_strategy("reuse").plan(prompt), source)
        # The libraries leave hundreds of thousands of objects that stay for ever. Frozen, they are not walked again:
        # a full collection in the middle of a question took 200 ms.
        gc.collect()
        gc.freeze()

    def close(self) -> None:
        """Stop the loader's threads."""
        self.executor.close()


def open_engine(settings: Settings, *, for_timing: bool = False, keep: bool = True) -> Engine:
    """Load both models. Raises ModelMissing, ModelRefused, DeviceUnavailable.

    Only `for_timing`, which benches alone ask for, may the model be one of random weights (`random:SHAPE`). Without
    `keep` nothing is noted in the data folder: another process writes there.
    """
    home = Home(settings.home)
    device, reason = choose_device(settings.device)
    twins = (settings.linears, settings.attention)
    if for_timing and has_random_weights(settings.model):
        words = models_folder() / EMBEDDED_MODEL
        model = load_random_model(settings.model, device, settings.weights, words, *twins)
    else:
        digests = _kept_file(home, "digests.json")
        model = load_language_model(resolve_model(settings.model), device, settings.weights, digests, *twins, keep)
    template = PromptTemplate(model.tokenizer, model.name)
    head = ",".join(str(token) for token in template.head)
    fingerprint = digest_fields([model.identity, head, CHUNK_TEMPLATE])
    decoding = choose_steps(settings.decoding, model)
    profile = choose_profile(settings.profile, home, fingerprint)
    reader = ChunkReader(model, template.head, settings.context, profile.coldest.name)
    placers = choose_placers(settings.placer, device)
    executor = Executor(reader, placers)
    embedding = EmbeddingModel.load(resolve_model(settings.embedding), linears=settings.linears)
    direct, why_direct = probe_direct_reads(home.temporary, settings.direct_reads)
    choices = {
        "model": Path(settings.model).name,
        "device": f"{device.type}: {reason}",
        "weights": model.weights,
        "dtype": str(model.dtype).removeprefix("torch."),
        "placer": f"{placers.placers[0].name}: {placers.reason}",
        "linears": f"{model.linears.name}: {model.linears.reason}",
        "attention": f"{model.attention.name}: {model.attention.reason}",
        "decoding": f"{decoding.name}: {decoding.reason}",
        "reads": f"{'direct' if direct else 'buffered'}: {why_direct}",
        "codec": f"{profile.coldest}: {profile.classes[-1].reason}",
        "profile": json.dumps(profile.as_json()),
        "context": settings.context,
        "neighbours": str(settings.neighbours),
        "window_tokens": str(model.window),
    }
    if keep and (file := _kept_file(home, "engine.json")) is not None:
        _remember(file, {**choices, "fingerprint": fingerprint})
    return Engine(
        model=model,
        template=template,
        reader=reader,
        executor=executor,
        embedding=embedding,
        fingerprint=fingerprint,
        tokenizer=digest_fields([model.tokenizer.backend_tokenizer.to_str(), CHUNK_TEMPLATE]),
        profile=profile,
        direct_reads=direct,
        choices=choices,
    )


def _kept_file(home: Home, name: str) -> Path | None:
    """A file of the data folder, or None where there is none yet or we may not write (a look, a dry run)."""
    return home.root / name if os.access(home.root, os.W_OK) else None


def text_cutter(settings: Settings) -> Callable[[str], list[int]]:
    """Where the tokens of a text begin, by the language model's tokenizer alone; cuts documents into chunks."""
    from tokenizers import Tokenizer

    tokenizer = text_tokenizer(Tokenizer.from_file(str(resolve_model(settings.model) / "tokenizer.json")))
    return lambda text: starts_of(tokenizer, text)


def _encoded_bytes(engine: Engine, tokens: int) -> int:
    from storage.blocks.layout import block_layout

    codec = engine.reader.codec
    return block_layout(engine.model.geometry, tokens, codec.keys, codec.values).body_bytes


def _remember(file: Path, choices: dict[str, str]) -> None:
    """Keep the last choices for `appliance status`, which must not load torch to tell them."""
    with suppress(OSError):  # a full disk: questions are answered all the same
        file.write_text(json.dumps(choices, indent=1))
