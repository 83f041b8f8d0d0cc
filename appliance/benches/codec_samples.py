"""Measuring codecs: a prompt's own KV through encoding, a block, and placing, and what the model then says.

Everything but the codec is left out: keys (before rotary) and values are those of the full reading, each chunk becomes
one block as ingest would make it, and the head and the tail stay as they were.
"""

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field

import torch

from appliance.benches.base import Progress, no_progress
from models.executor import Executor
from models.placing import PlacerChoice, PlainPlacer
from models.prompt import Prompt
from models.scoring import Divergence, FullReading, answer_log_probs, divergence, read_full
from storage.blocks import BlockHeader, EncodedBlock, encode_block, pack_header
from storage.codecs import CODECS, CodecPair, find_codec
from storage.errors import BlockRefused
from storage.geometry import Geometry

REFERENCE = CodecPair("bf16", "bf16")
"""Un-rotated and rotated again: what storing KV costs before any compression. Always measured."""

ANSWER_TOKENS = 16
# Keys need more bits than values (research/measurements.md), so most mixed pairs give them more. `int4h` is not among
# them: its keys are those of `int4`, only its values differ.
_MIXED = (
    *("bf16+int8", "int8+int4", "int8+int4h", "int8+int3", "int8+int3h", "int4+int8", "int4+int4f", "int4+int3"),
    *("int4+int3h", "int4f+int3h", "int3+int8", "int3+int4", "int3+int4h", "e4m3+e5m2", "e4m3+int4"),
    *("int6+int4", "int6+int4h", "int6+int3", "int6+int3h", "int5+int4", "int5+int4h", "int5+int3", "int5+int3h"),
)


@dataclass(frozen=True)
class CodecSample:
    """One pair over the chunks of one prompt; sums, so that samples can be pooled. Times in seconds.

    `plain_s` is the slow twin of placing, 0 where it was not timed; `refusal` says why the codec cannot hold this KV.
    """

    pair: CodecPair
    tokens: int = 0
    bf16_bytes: int = 0
    body_bytes: int = 0
    file_bytes: int = 0
    bf16_file_bytes: int = 0
    key_error: float = 0.0
    key_power: float = 0.0
    value_error: float = 0.0
    value_power: float = 0.0
    encode_s: float = 0.0
    place_s: float = 0.0
    plain_s: float = 0.0
    divergence: Divergence | None = None
    refusal: str = ""


@dataclass(frozen=True)
class QuestionSamples:
    """All pairs over one prompt: `answer` is `full`'s, in ids."""

    answer: tuple[int, ...]
    full_s: float
    samples: dict[str, CodecSample] = field(default_factory=dict)


def default_pairs() -> tuple[CodecPair, ...]:
    """Every codec for both sides, and the mixed pairs that make sense."""
    mixed = [CodecPair.named(name) for name in _MIXED]
    known = [pair for pair in mixed if pair.keys in CODECS and pair.values in CODECS]
    return (*(CodecPair(name, name) for name in CODECS), *known)


def named_pairs(names: str) -> tuple[CodecPair, ...]:
    """Pairs of a list such as `int8,int4+int8`, each once, `bf16` always among them. Raises StorageError."""
    pairs = [CodecPair.named(name.strip()) for name in names.split(",") if name.strip()]
    for pair in pairs:
        find_codec(pair.keys)
        find_codec(pair.values)
    return tuple(dict.fromkeys((REFERENCE, *pairs)))


def measure_codecs(
    executor: Executor,
    prompts: Sequence[Prompt],
    pairs: Sequence[CodecPair],
    progress: Progress = no_progress,
    twins: bool = True,
    turn: Callable[[], AbstractContextManager[None]] = nullcontext,
) -> list[QuestionSamples]:
    """Every pair over every prompt, in turns, so that a busy moment of the computer hits all alike.

    One full reading a prompt serves all pairs. `turn` is held for one prompt at a time. Raises PromptTooLong.
    """
    found = []
    for number, prompt in enumerate(prompts):
        progress("measuring codecs", number, len(prompts))
        with turn():
            began = time.perf_counter()
            reading = read_full(executor, prompt, ANSWER_TOKENS)
            full_s = time.perf_counter() - began
            samples = {}
            for place in range(len(pairs)):
                pair = pairs[(place + number) % len(pairs)]
                samples[pair.name] = _sample(executor, prompt, reading, pair, twins, warm=number == 0)
        found.append(QuestionSamples(reading.answer, full_s, samples))
    progress("measuring codecs", len(prompts), len(prompts))
    return found


def _sample(
    executor: Executor, prompt: Prompt, reading: FullReading, pair: CodecPair, twins: bool, warm: bool
) -> CodecSample:
    try:
        began = time.perf_counter()
        blocks = [
            encode_block(_header(executor.model.geometry, pair, end - start), keys, values)
            for start, end, keys, values in _chunks(prompt, reading)
        ]
        encode_s = time.perf_counter() - began
    except BlockRefused as refusal:
        return CodecSample(pair, refusal=str(refusal))
    errors = [0.0, 0.0, 0.0, 0.0]
    for block, (_, _, keys, values) in zip(blocks, _chunks(prompt, reading), strict=True):
        for place, (true, found) in enumerate(zip((keys, values), block.decode(), strict=True)):
            wide = true.to(torch.float32)
            errors[2 * place] += float((found - wide).square().sum(dtype=torch.float64))
            errors[2 * place + 1] += float(wide.square().sum(dtype=torch.float64))
    plain_s = _place(executor, prompt, blocks, PlacerChoice((PlainPlacer(),), "")) if twins else 0.0
    if warm:
        _place(executor, prompt, blocks, executor.placers)  # compiles
    place_s = _place(executor, prompt, blocks, executor.placers)
    scored = divergence(reading.log_probs, answer_log_probs(executor, prompt, reading.fed))
    tokens = sum(len(chunk) for chunk in prompt.chunks)
    return CodecSample(
        pair,
        tokens=tokens,
        bf16_bytes=4 * executor.model.geometry.elements(tokens),
        body_bytes=sum(block.header.layout.body_bytes for block in blocks),
        file_bytes=sum(_file_bytes(block.header) for block in blocks),
        bf16_file_bytes=sum(_file_bytes(_header(b.header.geometry, REFERENCE, b.header.tokens)) for b in blocks),
        key_error=errors[0],
        key_power=errors[1],
        value_error=errors[2],
        value_power=errors[3],
        encode_s=encode_s,
        place_s=place_s,
        plain_s=plain_s,
        divergence=scored,
    )


def _chunks(prompt: Prompt, reading: FullReading) -> list[tuple[int, int, torch.Tensor, torch.Tensor]]:
    """Start, end, keys and values of each chunk."""
    spans, start = [], len(prompt.head)
    for chunk in prompt.chunks:
        end = start + len(chunk)
        spans.append((start, end, reading.keys[:, :, start:end], reading.values[:, :, start:end]))
        start = end
    return spans


def _place(executor: Executor, prompt: Prompt, blocks: Sequence[EncodedBlock], placers: PlacerChoice) -> float:
    """Place all blocks where the chunks stand, one after another; seconds."""
    cos, sin = executor.model.rotary.upto(prompt.tokens)
    _finish(executor)
    began, start = time.perf_counter(), len(prompt.head)
    for block in blocks:
        placers.find(block, executor.arena).place(block, executor.arena, start, cos, sin)
        start += block.header.tokens
    _finish(executor)
    return time.perf_counter() - began


def _finish(executor: Executor) -> None:
    if executor.model.device.type == "cuda":
        torch.cuda.synchronize(executor.model.device)


def _header(geometry: Geometry, pair: CodecPair, tokens: int) -> BlockHeader:
    """Of a block that no store will ever see; as long as a real one's."""
    return BlockHeader(
        key="0" * 64,
        fingerprint="0" * 64,
        collection="default",
        kind="self",
        context="head",
        key_codec=pair.keys,
        value_codec=pair.values,
        generation=0,
        tokens=tokens,
        geometry=geometry,
        layer_checksums=("0" * 32,) * geometry.layers,
    )


def _file_bytes(header: BlockHeader) -> int:
    return len(pack_header(header)[0]) + header.layout.data_bytes
