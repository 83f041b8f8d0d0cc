"""Running a calibration: questions from the user's own documents, every codec, the profile that follows."""

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

from appliance.benches.base import BenchRefused, Progress, format_table, no_progress
from appliance.benches.codec_samples import ANSWER_TOKENS, REFERENCE, default_pairs, measure_codecs
from appliance.benches.codecs_result import CodecRow, rows_of
from appliance.benches.quality_data import (
    SEED,
    QualityQuestion,
    prompt_of,
    questions_of_documents,
    read_corpus,
    read_documents,
    read_questions,
)
from appliance.benches.sentence_questions import CutDocument
from appliance.calibration import Calibration, calibrated, save_calibration
from appliance.demo import sample_folder
from appliance.errors import ApplianceError
from appliance.gate import DEFAULT_TOP1_BOUND, Gate, gate_from_json
from appliance.gate_measuring import measure_gate
from appliance.one_line import one_line_errors
from appliance.service import Appliance
from models.prompt import Prompt
from storage.catalog import Catalog
from storage.codecs import CodecPair
from storage.profiles import DEFAULT_BOUNDS, DEFAULT_SHARES, CodecMeasurement

DEFAULT_QUESTIONS = 16
STORED, SAMPLES, NAMED = "stored documents", "sample folder", "--data"

_PROMPT_TOKENS = 2048
# Enough documents for a question of each, and others to stand beside the chunks of short ones.
_DOCUMENTS_PER_QUESTION = 2


@dataclass(frozen=True)
class CalibrationReport:
    """What was stored, and the rows behind it; `notes` are lines for the user."""

    calibration: Calibration
    rows: tuple[CodecRow, ...]
    notes: tuple[str, ...]

    def as_json(self) -> dict[str, Any]:
        """The object that `calibrate --json` prints."""
        return {**self.calibration.as_json(), "notes": list(self.notes)}

    def as_table(self) -> str:
        """The measurements, the choice and its reasons."""
        base = self.calibration.measurements[0].kl_bf16
        measured = format_table(
            ("codec", "bytes/token", "KL", "above bf16", "top-1"),
            [
                (row.name, f"{row.bytes_per_token:.0f}", f"{row.kl:.5f}", f"{row.kl - base:+.5f}", f"{row.top1:.3f}")
                for row in self.rows
            ],
        )
        chosen = [
            f"{each.name:<6}{each.share:>5.0%} of the chunks  {each.codec.name:<14}{each.reason}"
            for each in self.calibration.profile.classes
        ]
        asked = f"{self.calibration.questions} questions, {self.calibration.data}"
        profile = f"profile {self.calibration.profile.name} ({asked}):"
        return "\n".join((measured, "", profile, *chosen, "", *self._gate_lines(), *self.notes))

    def _gate_lines(self) -> list[str]:
        gate = gate_from_json(self.calibration.gate)
        rows = [
            (
                entry.rung.label,
                "neighbours" if entry.near else "plain",
                entry.codec,
                f"{entry.top1:.3f}",
                f"{entry.kl:.5f}",
                "yes" if entry.top1 >= gate.least_top1 else "no",
            )
            for entry in gate.entries
        ]
        table = format_table(("quality gate", "blocks", "codec", "top-1", "KL", "within"), rows)
        bound = f"bf16 rounding alone agrees at {gate.reference_top1:.3f}, the bound is {gate.least_top1:.3f}"
        return [table, f"{bound}: `auto` answers with {gate.safest().label}", ""]


def calibration_pairs(device: str = "cpu") -> tuple[CodecPair, ...]:
    """The pairs that a profile may choose: not `f32`, larger than the model's own numbers, nor GSE's other cuts.

    Nor, on a CPU, values after a Hadamard rotation: they take 5% less room and twice the time to place, which costs
    more than reading those 5% (docs/benchmarks.md).
    """
    left_out = ("h",) if device == "cpu" else ()
    pairs = (p for p in default_pairs() if p.name != "f32" and not p.name.startswith("gse8-"))
    return tuple(p for p in pairs if not p.keys.endswith(left_out) and not p.values.endswith(left_out))


def run_calibration(
    appliance: Appliance,
    data: Sequence[Path] = (),
    questions: int = DEFAULT_QUESTIONS,
    bounds: tuple[float, ...] = DEFAULT_BOUNDS,
    pairs: Sequence[CodecPair] | None = None,
    progress: Progress = no_progress,
    top1_bound: float = DEFAULT_TOP1_BOUND,
) -> CalibrationReport:
    """Measure on `data`, else on the stored documents, else on the sample folder; store what came out.

    `bounds` and `top1_bound`: see storage/profiles and gate.py. Questions that are asked meanwhile wait for one prompt
    at most. Raises ApplianceError.
    """
    _check(appliance, questions, bounds, top1_bound)
    engine = appliance.engine
    engine.warm()
    with one_line_errors():
        asked, documents, source = _questions(appliance, data, questions)
        limit = min(_PROMPT_TOKENS, engine.model.window - ANSWER_TOKENS)
        prompts = [prompt_of(engine.template, question, limit).prompt for question in asked]
        wanted = tuple(dict.fromkeys((REFERENCE, *(pairs or calibration_pairs(engine.model.device.type)))))
        measured = measure_codecs(engine.executor, prompts, wanted, progress, False, appliance.turns.background)
        rows, refused = _usable(*rows_of(measured))
        kl_bf16 = next((row.kl for row in rows if row.name == REFERENCE.name), None)
        if kl_bf16 is None:
            raise ApplianceError(f"bf16 itself cannot hold this model's KV ({refused[REFERENCE.name]})")
        calibration = calibrated(
            engine.fingerprint,
            engine.model.name,
            datetime.now(UTC).isoformat(timespec="seconds"),
            source,
            len(prompts),
            [
                CodecMeasurement(CodecPair(r.keys, r.values), r.bytes_per_token, r.kl, kl_bf16, r.top1, r.n)
                for r in rows
            ],
            bounds,
        )
        gate = _gate(appliance, prompts, documents, calibration, rows, top1_bound, progress)
        calibration = replace(calibration, gate=gate.as_json())
        save_calibration(appliance.home, calibration)
    notes = [f"{name}: not measured: {reason}" for name, reason in refused.items()]
    if source == SAMPLES:
        notes.append("nothing is stored yet, so the sample folder was asked about: calibrate again with your documents")
    if len(prompts) < questions:
        notes.append(f"the documents gave only {len(prompts)} of {questions} questions")
    return CalibrationReport(calibration, rows, tuple(notes))


def _gate(
    appliance: Appliance,
    prompts: Sequence[Prompt],
    documents: Sequence[CutDocument],
    calibration: Calibration,
    rows: Sequence[CodecRow],
    bound: float,
    progress: Progress,
) -> Gate:
    """Measured over the coarsest codec that the profile keeps blocks in: what holds there holds for finer ones."""
    kl = {row.name: row.kl for row in rows}
    kept = [each.codec for each in calibration.profile.classes if each.codec.name in kl] or [REFERENCE]
    coarsest = max(kept, key=lambda codec: kl[codec.name])
    top1 = {row.name: row.top1 for row in rows}
    turn, neighbours = appliance.turns.background, appliance.settings.neighbours
    return measure_gate(appliance.engine, prompts, documents, coarsest, top1, kl, bound, progress, turn, neighbours)


def _usable(rows: Sequence[CodecRow], refused: Mapping[str, str]) -> tuple[tuple[CodecRow, ...], dict[str, str]]:
    """Rows whose numbers can be kept and compared; the others are refused, too."""
    lost = {row.name: "its KL is not a finite number" for row in rows if not math.isfinite(row.kl)}
    return tuple(row for row in rows if row.name not in lost), {**refused, **lost}


def _check(appliance: Appliance, questions: int, bounds: tuple[float, ...], top1_bound: float) -> None:
    if not appliance.writable:
        raise ApplianceError("another process uses this data folder: stop it, or name another with --home")
    if questions < 1:
        raise ApplianceError(f"questions is {questions}: ask at least 1")
    if not 0 <= top1_bound <= 1:
        raise ApplianceError(f"the bound of the quality gate is {top1_bound:g}: choose 0 to 1")
    rising = all(low <= high and math.isfinite(high) for low, high in pairwise((0.0, *bounds)))
    if len(bounds) != len(DEFAULT_SHARES) or not rising:
        raise ApplianceError(
            f"bounds are {', '.join(f'{bound:g}' for bound in bounds)}: give {len(DEFAULT_SHARES)}, the hottest class"
            " first, none below the one before, as 0.001,0.002,0.005,0.01"
        )


def _questions(
    appliance: Appliance, data: Sequence[Path], count: int
) -> tuple[list[QualityQuestion], list[CutDocument], str]:
    """Questions, the documents that their passages have neighbours in, and where they are from. Raises BenchRefused."""
    starts, chunk_tokens = appliance.engine.template.token_starts, appliance.settings.chunk_tokens
    if data:
        return read_questions(data, count, starts, chunk_tokens), read_corpus(data, starts, chunk_tokens), NAMED
    documents = _stored(appliance.catalog, count)
    found = questions_of_documents(documents, count, STORED)
    if found:
        return found, documents, STORED
    samples = read_documents([sample_folder()], starts, chunk_tokens)
    found = questions_of_documents(samples, count, SAMPLES)
    if not found:
        raise BenchRefused("the sample folder holds no text: reinstall, or name documents with --data")
    return found, samples, SAMPLES


def _stored(catalog: Catalog, count: int) -> list[CutDocument]:
    """A sample of the stored documents as their chunks; the same documents give the same sample."""
    rows = catalog.documents()
    chooser = random.Random(SEED)  # noqa: S311 - a sample, no secret
    chosen = chooser.sample(rows, min(len(rows), _DOCUMENTS_PER_QUESTION * count))
    return [CutDocument(row.title, tuple(chunk.text for chunk in catalog.chunks_of(row.id))) for row in chosen]
