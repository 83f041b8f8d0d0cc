"""What each KV set does to answers, against TurboRAG's own: ROUGE-1 F1, and agreement along its answer.

Placement changes no number (every tier holds a file's own bytes), so systems over one set share its quality.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from appliance.benches.base import Progress
from appliance.benches.harag.base import ANSWER_TOKENS, TURBORAG, Asked
from appliance.benches.harag.measure import prompt_of
from appliance.benches.harag.systems import StoredSystem
from appliance.benches.harag.turborag import TurboRag
from appliance.benches.harag.workload import Workload
from appliance.benches.rouge import rouge1_f1
from appliance.engine import Engine
from models.generation import generate
from models.prompt import Prompt
from models.scoring import answer_log_probs, divergence
from storage.codecs import CodecPair

FIGURE_CODECS = tuple(CodecPair.named(name) for name in ("int8t", "e4m3", "e5m2", "gse8", "int4"))
"""Each alone over all chunks, for Figures 10 and 11: the paper's four, and the smallest of ours."""
FIGURE_QUESTIONS = 32


@dataclass(frozen=True)
class SetAnswer:
    """One set's greedy answer, its ROUGE-1 F1 against TurboRAG's, and agreement and KL teacher-forced along that.

    `agrees` is with TurboRAG's likeliest token at each position, `agrees_bf16` with that of bf16 through our path.
    """

    ids: tuple[int, ...]
    text: str
    rouge1: float
    agrees: tuple[bool, ...]
    agrees_bf16: tuple[bool, ...]
    kl: float


@dataclass(frozen=True)
class Answered:
    """One question's answers by set; `turborag` is the reference."""

    question: str
    sets: dict[str, SetAnswer] = field(default_factory=dict)
    codecs: dict[str, float] = field(default_factory=dict)
    """ROUGE-1 F1 of each of FIGURE_CODECS alone, where it was asked for."""


def answer_all(
    engine: Engine,
    turborag: TurboRag,
    sets: Mapping[str, StoredSystem],
    workload: Workload,
    asked: Sequence[Asked],
    figure_questions: int,
    progress: Progress,
) -> list[Answered]:
    """Answer these questions over every set, `bf16` first, and the first few over each codec alone."""
    answered = []
    for number, one in enumerate(asked):
        progress("answering", number, len(asked))
        prompt = prompt_of(engine, workload, one.question, one.keys[::-1])
        pairs = FIGURE_CODECS if number < figure_questions else ()
        answered.append(_answer(engine, turborag, sets, one, prompt, pairs))
    return answered


def _answer(
    engine: Engine,
    turborag: TurboRag,
    sets: Mapping[str, StoredSystem],
    one: Asked,
    prompt: Prompt,
    pairs: Sequence[CodecPair],
) -> Answered:
    kv = turborag.load(prompt, one.keys)
    ids = turborag.answer(prompt, kv, ANSWER_TOKENS)
    fed = ids[: ANSWER_TOKENS - 1]
    reference, text = turborag.log_probs(prompt, kv, fed), _text(engine, ids)
    everywhere = (True,) * len(reference)
    answered = Answered(one.question)
    bf16 = None
    for name, system in sets.items():
        ours = _greedy(engine, system, prompt, one.keys)
        found = answer_log_probs(engine.executor, prompt, fed)
        bf16 = found if bf16 is None else bf16
        against = divergence(reference, found)
        answered.sets[name] = SetAnswer(
            ids=ours,
            text=_text(engine, ours),
            rouge1=rouge1_f1(_text(engine, ours), text),
            agrees=against.agrees,
            agrees_bf16=divergence(bf16, found).agrees,
            kl=against.mean_kl,
        )
    if bf16 is not None:
        answered.sets[TURBORAG] = SetAnswer(ids, text, 1.0, everywhere, divergence(bf16, reference).agrees, 0.0)
    for pair in pairs:
        alone = _greedy(engine, sets["bf16"], prompt, one.keys, pair)
        answered.codecs[pair.name] = rouge1_f1(_text(engine, alone), text)
    return answered


def _greedy(
    engine: Engine, system: StoredSystem, prompt: Prompt, keys: Sequence[str], pair: CodecPair | None = None
) -> tuple[int, ...]:
    """The set's own answer; the arena holds its KV afterwards."""
    execution = system.execute(prompt, keys, ANSWER_TOKENS, pair)
    return tuple(generate(engine.executor, execution.logits, prompt.tokens, ANSWER_TOKENS))


def _text(engine: Engine, ids: Sequence[int]) -> str:
    return str(engine.model.tokenizer.decode(list(ids), skip_special_tokens=True)).strip()
