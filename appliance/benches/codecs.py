"""`appliance bench codecs`: what each codec costs and what it does to answers (HA-RAG, Table II and Figure 9)."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from appliance.benches.base import BenchRefused, Progress, dump_json, machine_facts, median, no_progress
from appliance.benches.codec_samples import (
    ANSWER_TOKENS,
    REFERENCE,
    QuestionSamples,
    default_pairs,
    measure_codecs,
)
from appliance.benches.codecs_result import CodecsResult, rows_of
from appliance.benches.plots import check_plot_file, save_panels
from appliance.benches.quality_data import SEED, QualityPrompt, prompt_of, read_questions
from appliance.engine import Engine, open_engine
from appliance.settings import Settings
from storage.codecs import CodecPair

DEFAULT_PROMPT_TOKENS = 2048


@dataclass(frozen=True)
class CodecsBenchSettings:
    """`pairs` None means all that are known. `prompt_tokens` is the most a prompt may have, head and tail included."""

    data: tuple[Path, ...]
    questions: int = 24
    pairs: tuple[CodecPair, ...] | None = None
    prompt_tokens: int = DEFAULT_PROMPT_TOKENS
    plot: Path | None = None
    dump: Path | None = None

    def __post_init__(self) -> None:
        if not self.data:
            raise BenchRefused("no data to measure with: name at least one file with --data")
        if min(self.questions, self.prompt_tokens) < 1:
            raise BenchRefused("questions and prompt-tokens must be at least 1")
        check_plot_file(self.plot)


def run_codecs_bench(settings: Settings, bench: CodecsBenchSettings, progress: Progress = no_progress) -> CodecsResult:
    """Run it. Raises BenchRefused, and what loading the model raises."""
    engine = open_engine(settings)
    try:
        engine.warm()
        asked = read_questions(bench.data, bench.questions, engine.template.token_starts, settings.chunk_tokens)
        limit = min(bench.prompt_tokens, engine.model.window - ANSWER_TOKENS)
        prompts = [prompt_of(engine.template, question, limit) for question in asked]
        pairs = tuple(dict.fromkeys((REFERENCE, *(bench.pairs or default_pairs()))))
        measured = measure_codecs(engine.executor, [one.prompt for one in prompts], pairs, progress)
    finally:
        engine.close()
    rows, refused = rows_of(measured)
    result = CodecsResult(rows, refused, _facts(engine, bench, prompts, measured))
    if bench.dump is not None:
        dump_json(bench.dump, "result", result.as_json())
        dump_json(bench.dump, "questions", _dump(engine, prompts, measured))
    if bench.plot is not None:
        save_panels(bench.plot, result.panels())
    return result


def _facts(
    engine: Engine, bench: CodecsBenchSettings, prompts: Sequence[QualityPrompt], measured: Sequence[QuestionSamples]
) -> dict[str, object]:
    samples = [question.samples[REFERENCE.name] for question in measured]
    return {
        "data": ", ".join(path.name for path in bench.data),
        "questions": len(prompts),
        "seed": SEED,
        "chunks": median([len(one.prompt.chunks) for one in prompts]),
        "prompt_tokens": median([one.prompt.tokens for one in prompts]),
        "answer_tokens": ANSWER_TOKENS,
        "positions": sum(len(sample.divergence.kl) for sample in samples if sample.divergence is not None),
        "model": engine.model.name,
        "fingerprint": engine.fingerprint,
        **{name: engine.choices[name] for name in ("dtype", "placer", "linears", "attention", "decoding")},
        "machine": machine_facts(),
    }


def _dump(
    engine: Engine, prompts: Sequence[QualityPrompt], measured: Sequence[QuestionSamples]
) -> list[dict[str, object]]:
    """Everything the rows were made of: ids, spans, `full`'s answers, KL and agreement at each position, times."""
    return [
        {
            **one.as_json(),
            "answer_ids": list(question.answer),
            "answer": engine.model.tokenizer.decode(list(question.answer), skip_special_tokens=True),
            "full_ms": question.full_s * 1e3,
            "codecs": {
                name: {
                    "refusal": sample.refusal,
                    "kl": sample.divergence.kl if sample.divergence else (),
                    "agrees": sample.divergence.agrees if sample.divergence else (),
                    "encode_ms": sample.encode_s * 1e3,
                    "place_ms": sample.place_s * 1e3,
                    "plain_ms": sample.plain_s * 1e3,
                }
                for name, sample in question.samples.items()
            },
        }
        for one, question in zip(prompts, measured, strict=True)
    ]
