"""Everything someone else needs to check the numbers (DESIGN.md §8.8)."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from appliance.benches.base import BenchRefused, dump_json
from appliance.benches.quality.base import Outcome
from appliance.benches.quality.measure import Measured
from appliance.benches.quality.result import QualityResult
from appliance.benches.quality_data import QualityPrompt


def dump_logits(folder: Path, number: int, measured: Measured) -> Measured:
    """Write `logits-<question>.npz`: each method's logits of the first token, float32 `[vocabulary]`, by its label.

    Returns the same without them: those of all questions would fill the memory. Raises BenchRefused.
    """
    logits = {
        method.label: one.logits.cpu().numpy() for method, one in measured.outcomes.items() if one.logits is not None
    }
    target = folder / f"logits-{number}.npz"
    try:
        with target.open("wb") as file:
            np.savez(file, **logits)  # type: ignore[arg-type]
    except OSError as error:
        raise BenchRefused(f"{target} cannot be written ({error.strerror}): name another folder for --dump") from error
    return replace(measured, outcomes={m: replace(one, logits=None) for m, one in measured.outcomes.items()})


def dump_run(
    folder: Path, result: QualityResult, prompts: Sequence[QualityPrompt], measured: Sequence[Measured]
) -> None:
    """Write `result` and `questions`. Raises BenchRefused."""
    dump_json(folder, "result", result.as_json())
    dump_json(folder, "questions", [_question(*pair) for pair in zip(prompts, measured, strict=True)])


def _question(one: QualityPrompt, measured: Measured) -> dict[str, Any]:
    """Ids, spans, and of each method KL and agreement at each position, its answer, its times, in order of its turn."""
    return {**one.as_json(), "methods": {method.label: _outcome(o) for method, o in measured.outcomes.items()}}


def _outcome(outcome: Outcome) -> dict[str, Any]:
    return {
        "kl": outcome.divergence.kl,
        "agrees": outcome.divergence.agrees,
        "ttft_ms": outcome.ttft_ms,
        "tokens_recomputed": outcome.tokens_recomputed,
        "tokens_computed": outcome.tokens_computed,
        "answer_ids": outcome.answer,
        "answer": outcome.text if outcome.answer is not None else None,
    }
