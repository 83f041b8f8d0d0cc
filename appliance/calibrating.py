"""Running a calibration: questions from the user's own documents, every codec, the profile that follows."""

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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
    read_documents,
    read_questions,
)
from appliance.benches.sentence_questions import CutDocument
from appliance.calibration import Calibration, calibrated, save_calibration
from appliance.demo import sample_folder
from appliance.errors import ApplianceError
from appliance.one_line import one_line_errors
from appliance.service import Appliance
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
        return "\n".join((measured, "", f"profile {self.calibration.profile.name} ({asked}):", *chosen, *self.notes))


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
) -> CalibrationReport:
    """Measure on `data`, else on the stored documents, else on the sample folder; store what came out.

    Questions that are asked meanwhile wait for one prompt at most. Raises ApplianceError.
    """
    _check(appliance, questions, bounds)
    engine = appliance.engine
    engine.warm()
    with one_line_errors():
        asked, source = _questions(appliance, data, questions)
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
        save_calibration(appliance.home, calibration)
    notes = [f"{name}: not measured: {reason}" for name, reason in refused.items()]
    if source == SAMPLES:
        notes.append("nothing is stored yet, so the sample folder was asked about: calibrate again with your documents")
    if len(prompts) < questions:
        notes.append(f"the documents gave only {len(prompts)} of {questions} questions")
    return CalibrationReport(calibration, rows, tuple(notes))


def _usable(rows: Sequence[CodecRow], refused: Mapping[str, str]) -> tuple[tuple[CodecRow, ...], dict[str, str]]:
    """Rows whose numbers can be kept and compared; the others are refused, too."""
    lost = {row.name: "its KL is not a finite number" for row in rows if not math.isfinite(row.kl)}
    return tuple(row for row in rows if row.name not in lost), {**refused, **lost}


def _check(appliance: Appliance, questions: int, bounds: tuple[float, ...]) -> None:
    if not appliance.writable:
        raise ApplianceError("another process uses this data folder: stop it, or name another with --home")
    if questions < 1:
        raise ApplianceError(f"questions is {questions}: ask at least 1")
    rising = all(low <= high and math.isfinite(high) for low, high in pairwise((0.0, *bounds)))
    if len(bounds) != len(DEFAULT_SHARES) or not rising:
        raise ApplianceError(
            f"bounds are {', '.join(f'{bound:g}' for bound in bounds)}: give {len(DEFAULT_SHARES)}, the hottest class"
            " first, none below the one before, as 0.001,0.002,0.005,0.01"
        )


def _questions(appliance: Appliance, data: Sequence[Path], count: int) -> tuple[list[QualityQuestion], str]:
    """Questions and where they are from. Raises BenchRefused."""
    starts, chunk_tokens = appliance.engine.template.token_starts, appliance.settings.chunk_tokens
    if data:
        return read_questions(data, count, starts, chunk_tokens), NAMED
    found = questions_of_documents(_stored(appliance.catalog, count), count, STORED)
    if found:
        return found, STORED
    samples = read_documents([sample_folder()], starts, chunk_tokens)
    found = questions_of_documents(samples, count, SAMPLES)
    if not found:
        raise BenchRefused("the sample folder holds no text: reinstall, or name documents with --data")
    return found, SAMPLES


def _stored(catalog: Catalog, count: int) -> list[CutDocument]:
    """A sample of the stored documents as their chunks; the same documents give the same sample."""
    rows = catalog.documents()
    chooser = random.Random(SEED)  # noqa: S311 - a sample, no secret
    chosen = chooser.sample(rows, min(len(rows), _DOCUMENTS_PER_QUESTION * count))
    return [CutDocument(row.title, tuple(chunk.text for chunk in catalog.chunks_of(row.id))) for row in chosen]
