"""`appliance bench decode`: milliseconds a token after a long context, ours against transformers and llama.cpp.

On a GPU ours are `graph`, `eager` and `plain` (models/stepping), each with its share of what the memory allows.

All have read the same ids before anything is timed, and take turns, so that a slow moment of the computer hits each
alike. The best round of each counts: what is measured is the work, not the neighbours.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch

from appliance.benches.base import (
    BenchRefused,
    Progress,
    format_table,
    machine_facts,
    machine_line,
    median,
    no_progress,
)
from appliance.benches.decode_floor import DecodeFloor, bytes_per_token, measured_rate
from appliance.benches.decode_systems import DecodeSystem, LlamaCpp, Ours, Transformers, our_systems
from appliance.benches.quality_data import read_corpus
from appliance.demo import sample_folder
from appliance.engine import text_cutter
from appliance.settings import Settings
from models.loading import (
    WEIGHTS,
    LanguageModel,
    choose_device,
    has_random_weights,
    load_language_model,
    load_random_model,
    resolve_model,
)

PEERS = ("transformers", "llama.cpp")


@dataclass(frozen=True)
class DecodeBenchSettings:
    """`data`: what the context is made of; none means the sample folder. `llama_cpp`: a GGUF file."""

    data: tuple[Path, ...] = ()
    context_tokens: int = 2000
    new_tokens: int = 64
    rounds: int = 5
    weights: tuple[str, ...] = ("bf16",)
    llama_cpp: Path | None = None

    def __post_init__(self) -> None:
        if min(self.context_tokens - 1, self.new_tokens, self.rounds) < 1:
            raise BenchRefused("context-tokens must be at least 2, new-tokens and rounds at least 1")
        unknown = [name for name in self.weights if name not in WEIGHTS]
        if unknown or not self.weights:
            raise BenchRefused(f"--weights {','.join(unknown)!r}: choose from {', '.join(WEIGHTS)}")


@dataclass(frozen=True)
class DecodeRow:
    """`over_…`: tokens a second as a multiple of that peer's; None where it was not measured."""

    name: str
    weights: str
    ms_per_token: float
    median_ms_per_token: float
    tokens_per_s: float
    over_transformers: float | None
    over_llama_cpp: float | None
    share_of_bandwidth: float | None
    """Of the device's memory (decode_floor.py); of ours, on a GPU."""
    same_tokens: int
    """How many of the first new tokens are those that the first row's system said."""


@dataclass(frozen=True)
class DecodeResult:
    """What `--json` prints."""

    rows: tuple[DecodeRow, ...]
    notes: tuple[str, ...]
    facts: dict[str, Any]

    def as_json(self) -> dict[str, Any]:
        """One object."""
        return asdict(self)


def run_decode_bench(settings: Settings, bench: DecodeBenchSettings, progress: Progress = no_progress) -> DecodeResult:
    """Run it. Raises BenchRefused, and what loading a model raises."""
    device, _ = choose_device(settings.device)
    models = []
    for number, weights in enumerate(bench.weights):
        progress("loading", number, len(bench.weights))
        models.append(_load(settings, device, weights))
    ids = _context(settings, bench, models[0])
    if len(ids) + bench.new_tokens > models[0].window:
        raise BenchRefused(f"{len(ids)} + {bench.new_tokens} tokens exceed the window of {models[0].window}")
    systems: list[DecodeSystem] = []
    notes = []
    if has_random_weights(settings.model):
        notes.append("transformers was not measured: random weights lie in no folder; the context is random, too")
    else:
        systems.append(Transformers(resolve_model(settings.model), device, models[0].dtype, ids))
    for model in models:
        ours, told = our_systems(model, ids, bench.new_tokens, settings.decoding)
        systems += ours
        notes += told
    if bench.llama_cpp is not None and find_spec("llama_cpp") is not None:
        systems.append(LlamaCpp(bench.llama_cpp, ids, bench.new_tokens))
    else:
        missing = "no --llama-cpp FILE.gguf" if bench.llama_cpp is None else "llama-cpp-python is not installed"
        notes.append(f"llama.cpp was not measured: {missing}")
    rate = measured_rate(device)
    middle = len(ids) + bench.new_tokens / 2
    floors = {} if rate is None else {m.weights: DecodeFloor(bytes_per_token(m, middle), rate) for m in models}
    rows = _rows(systems, bench, floors, progress)
    facts = {
        "model": Path(settings.model).name,
        "fingerprints": {model.weights: model.identity for model in models},
        "context_tokens": len(ids),
        "new_tokens": bench.new_tokens,
        "rounds": bench.rounds,
        "linears": models[0].linears.name,
        "attention": models[0].attention.name,
        "weights_bytes": models[0].weights_bytes,
        "memory_bytes_per_s": rate,
        "floors": {weights: {**asdict(f), "ms_per_token": f.ms_per_token} for weights, f in floors.items()},
        "machine": machine_facts(),
    }
    return DecodeResult(rows, tuple(notes), facts)


def _load(settings: Settings, device: torch.device, weights: str) -> LanguageModel:
    twins = (settings.linears, settings.attention)
    if has_random_weights(settings.model):
        return load_random_model(settings.model, device, weights, None, *twins)
    return load_language_model(resolve_model(settings.model), device, weights, None, *twins)


def _context(settings: Settings, bench: DecodeBenchSettings, model: LanguageModel) -> np.ndarray:
    """Ids of the data's text, as many as wanted, repeated where the data are shorter; random ids for random weights."""
    if has_random_weights(settings.model):
        return np.random.default_rng(0).integers(0, len(model.tokenizer), bench.context_tokens)
    data = list(bench.data) or [sample_folder()]
    documents = read_corpus(data, text_cutter(settings), settings.chunk_tokens)
    text = "\n\n".join(chunk for document in documents for chunk in document.chunks)
    ids = model.tokenizer.encode(text, add_special_tokens=False)
    if not ids:
        raise BenchRefused(f"{', '.join(path.name for path in data)}: no text to decode after: name other data")
    return np.resize(np.asarray(ids, dtype=np.int64), bench.context_tokens)


def _rows(
    systems: Sequence[DecodeSystem], bench: DecodeBenchSettings, floors: dict[str, DecodeFloor], progress: Progress
) -> tuple[DecodeRow, ...]:
    seconds: list[list[float]] = [[] for _ in systems]
    told: list[list[int]] = [[] for _ in systems]
    for system in systems:
        system.decode(min(bench.new_tokens, 4))  # compiles, fills caches; not counted
    for turn in range(bench.rounds):
        progress("decoding", turn, bench.rounds)
        for index, system in enumerate(systems):
            took, told[index] = system.decode(bench.new_tokens)
            seconds[index].append(took)
    best = {system.name: min(times) for system, times in zip(systems, seconds, strict=True) if system.name in PEERS}
    rows = []
    for system, times, tokens in zip(systems, seconds, told, strict=True):
        same = next((n for n, pair in enumerate(zip(tokens, told[0], strict=True)) if pair[0] != pair[1]), len(tokens))
        took = min(times)
        ms_per_token = took / bench.new_tokens * 1e3
        floor = floors.get(system.weights) if isinstance(system, Ours) else None
        rows.append(
            DecodeRow(
                name=system.name,
                weights=system.weights,
                ms_per_token=ms_per_token,
                median_ms_per_token=median(times) / bench.new_tokens * 1e3,
                tokens_per_s=bench.new_tokens / took,
                over_transformers=best["transformers"] / took if "transformers" in best else None,
                over_llama_cpp=best["llama.cpp"] / took if "llama.cpp" in best else None,
                share_of_bandwidth=None if floor is None else floor.share(ms_per_token),
                same_tokens=same,
            )
        )
    return tuple(rows)


def table_of(result: DecodeResult) -> str:
    """The result for people."""
    peers = ("× transformers", "× llama.cpp")
    header = ("", "weights", "ms a token", "median", "tokens/s", *peers, "of memory's rate", "same tokens")
    rows = [
        (
            row.name,
            row.weights,
            f"{row.ms_per_token:.2f}",
            f"{row.median_ms_per_token:.2f}",
            f"{row.tokens_per_s:.1f}",
            "–" if row.over_transformers is None else f"{row.over_transformers:.2f}",
            "–" if row.over_llama_cpp is None else f"{row.over_llama_cpp:.2f}",
            "–" if row.share_of_bandwidth is None else f"{row.share_of_bandwidth:.0%}",
            str(row.same_tokens),
        )
        for row in result.rows
    ]
    facts = result.facts
    about = (
        f"{facts['model']}, {facts['context_tokens']} tokens of context, {facts['new_tokens']} new, best of "
        f"{facts['rounds']} rounds"
    )
    return "\n".join([format_table(header, rows), "", about, *result.notes, machine_line(facts["machine"])])


__all__ = ["DecodeBenchSettings", "DecodeResult", "DecodeRow", "run_decode_bench", "table_of"]
