"""Measuring the quality gate: a small quality lab over the questions of a calibration (see gate.py)."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext

from appliance.benches.base import Progress, no_progress
from appliance.benches.quality import ChunkBlocks, Lab, Method, Neighbours, Outcome, Reference, embed_passages
from appliance.benches.sentence_questions import CutDocument
from appliance.engine import Engine
from appliance.gate import DEFAULT_TOP1_BOUND, LADDER, Gate, GateEntry, Rung
from appliance.neighbours import NeighbourSettings
from appliance.neighbours.base import DEFAULT_NEIGHBOURS
from models.prompt import Prompt
from storage.codec_pair import CodecPair

MOST_PASSAGES = 400
_BLOCK_BYTES = 2 << 30

Turn = Callable[[], AbstractContextManager[None]]


def measure_gate(
    engine: Engine,
    prompts: Sequence[Prompt],
    documents: Sequence[CutDocument],
    codec: CodecPair,
    codec_top1: Mapping[str, float],
    codec_kl: Mapping[str, float],
    bound: float = DEFAULT_TOP1_BOUND,
    progress: Progress = no_progress,
    turn: Turn = nullcontext,
    neighbours: int = DEFAULT_NEIGHBOURS,
) -> Gate:
    """Climb the ladder until a rung is within the bound, over plain blocks and over those read behind neighbours.

    `codec`: the coarsest that blocks are kept in; `codec_top1` and `codec_kl` of each codec alone, `bf16` among them.
    `turn` is held for one prompt, or the reading of one chunk, at a time. `neighbours` as in Settings: with 0 there are
    no blocks behind them. Raises PromptTooLong, BlockRefused.
    """
    lab = _lab(engine, prompts, documents, neighbours, progress)
    references = []
    for number, prompt in enumerate(prompts):
        progress("quality gate: reading", number, len(prompts))
        with turn():
            references.append(lab.read(prompt))
    gate = Gate("", bound, codec_top1["bf16"], (), codec_top1, codec_kl)
    entries: list[GateEntry] = []
    for near in (False, True) if neighbours and engine.reader.context == "head" else (False,):
        for rung in LADDER:
            if not rung.measured_over(near):
                continue
            method = Method(rung.strategy, rung.ratio, codec, rung.select, near)
            entry = _entry(rung, method, _measure(lab, prompts, references, method, progress, turn))
            entries.append(entry)
            if entry.top1 >= gate.least_top1:
                break
    return Gate("", bound, codec_top1["bf16"], tuple(entries), codec_top1, codec_kl)


def _lab(
    engine: Engine, prompts: Sequence[Prompt], documents: Sequence[CutDocument], neighbours: int, progress: Progress
) -> Lab:
    wanted = [chunk for prompt in prompts for chunk in prompt.chunks]
    passages = embed_passages(documents, wanted, engine.template, engine.embedding, progress, MOST_PASSAGES)
    chosen = NeighbourSettings(neighbours)
    before = Neighbours(passages, chosen.chooser, chosen.neighbours, chosen.tokens)
    return Lab(engine, ChunkBlocks(engine, _BLOCK_BYTES), before)


def _measure(
    lab: Lab,
    prompts: Sequence[Prompt],
    references: Sequence[Reference],
    method: Method,
    progress: Progress,
    turn: Turn,
) -> list[Outcome]:
    """One method over all prompts."""
    outcomes = []
    for number, (prompt, reference) in enumerate(zip(prompts, references, strict=True)):
        progress(f"quality gate: {method.name} {method.ratio:.0%}", number, len(prompts))
        for chunk in range(len(prompt.chunks)):
            with turn():
                lab.prepare(prompt, chunk, method)
        with turn():
            outcomes.append(lab.measure(prompt, reference, method, answer=False))
    return outcomes


def _entry(rung: Rung, method: Method, outcomes: Sequence[Outcome]) -> GateEntry:
    count = len(outcomes)
    top1 = sum(one.divergence.top1 for one in outcomes) / count
    kl = sum(one.divergence.mean_kl for one in outcomes) / count
    codec = "" if method.codec is None else method.codec.name
    return GateEntry(rung, method.near, codec, top1, kl, count)
