"""What the quality lab measures: methods, settings, and what one method gave on one question."""

from dataclasses import dataclass, field
from pathlib import Path

import torch

from appliance.benches.base import BenchRefused, check_folder
from appliance.neighbours import NeighbourSettings
from models.loading import WEIGHTS
from models.scoring import Divergence
from models.selection import SELECTS
from models.strategies import DEFAULT_RATIO, STRATEGIES
from storage.codecs import CODECS, CodecPair

ANSWER_TOKENS = 16
DEFAULT_PROMPT_TOKENS = 2048
MEMORY_BYTES = 6 << 30
REFERENCE_CODEC = CodecPair("bf16", "bf16")

FULL, REUSE, NEAR = "full", "reuse", "near"
"""Always measured; `near` is `reuse` over blocks read behind their neighbours: FusionRAG's offline stage alone."""
SELECTING = ("blend", "craft", "epic", "fusion")
CHOOSERS = ("embedding", "document", "none", "prompt")
"""How neighbours are chosen, see passages.Neighbours."""


@dataclass(frozen=True)
class Method:
    """One way of putting KV together. `ratio`: the share of the chunk tokens computed again; `codec` None: no block.

    `near`: over blocks that were read behind their neighbours.
    """

    name: str
    ratio: float
    codec: CodecPair | None
    select: str | None = None
    near: bool = False

    @property
    def strategy(self) -> str:
        """The strategy that carries it out."""
        return REUSE if self.name == NEAR else self.name

    @property
    def label(self) -> str:
        """`fusion spread 0.15 bf16`."""
        ratio = f"{self.ratio:.3g}" if self.name in SELECTING else None
        parts = (self.name, self.select, ratio, self.codec.name if self.codec else None)
        return " ".join(part for part in parts if part)


@dataclass(frozen=True)
class QualityBenchSettings:
    """What to measure. `data`: documents or question sets; `prompt_tokens`: the most a prompt may have.

    `answers`: the first so many questions are also answered greedily by every method. `exact_first`: the first chunk of
    a prompt takes its block behind the head alone, which is exact there. `neighbour_tokens`: what neighbours of a chunk
    may take together. `memory_bytes`: the most that blocks take in memory. `cold`: blocks lie in files, read past the
    page cache. `against`: the model with its weights kept so is what all is compared with, `full` too, instead of the
    model as it is measured. Raises BenchRefused.
    """

    data: tuple[Path, ...]
    strategies: tuple[str, ...] = SELECTING
    ratios: tuple[float, ...] = (DEFAULT_RATIO,)
    selects: tuple[str, ...] = tuple(SELECTS)
    codecs: tuple[CodecPair, ...] = (REFERENCE_CODEC,)
    questions: int = 32
    prompt_tokens: int = DEFAULT_PROMPT_TOKENS
    neighbours: int = NeighbourSettings.neighbours
    neighbour_tokens: int = NeighbourSettings.tokens
    chooser: str = "embedding"
    answer_tokens: int = ANSWER_TOKENS
    answers: int = 64
    exact_first: bool = True
    cold: bool = False
    against: str | None = None
    plots: Path | None = None
    dump: Path | None = None
    memory_bytes: int = MEMORY_BYTES

    def __post_init__(self) -> None:
        if not self.data:
            raise BenchRefused("no data to measure with: name at least one file with --data")
        counts = (self.questions, self.prompt_tokens, self.neighbours, self.answer_tokens)
        if min(counts) < 1 or self.answers < 0:
            raise BenchRefused(
                "questions, prompt-tokens, neighbours and answer-tokens must be at least 1, answers at least 0"
            )
        known = (FULL, REUSE, NEAR, *SELECTING)
        _known("--strategies", self.strategies, known)
        _known("--select", self.selects, tuple(SELECTS))
        _known("--chooser", (self.chooser,), CHOOSERS)
        _known("--against", (self.against or "bf16",), WEIGHTS)
        for pair in self.codecs:
            _known("--codecs", (pair.keys, pair.values), tuple(CODECS))
        if any(not 0 <= ratio <= 1 for ratio in self.ratios):
            raise BenchRefused(f"--ratios {','.join(f'{ratio:g}' for ratio in self.ratios)}: choose shares of 0 to 1")
        if not self.ratios or not self.codecs or not self.selects:
            raise BenchRefused("ratios, codecs and select must each name at least one")
        if self.chooser == "none" and "craft" in self.strategies and self.strategies != SELECTING:
            raise BenchRefused("craft needs what is recorded behind neighbours: choose another --chooser than none")
        check_folder(self.plots, "--plots")
        check_folder(self.dump, "--dump")

    def methods(self) -> tuple[Method, ...]:
        """Everything that is measured, `full` first; `reuse` and `near` once a codec."""
        found = [Method(FULL, 1.0, None)]
        for codec in dict.fromkeys(self.codecs):
            found.append(Method(REUSE, 0.0, codec))
            if self.chooser != "none":
                found.append(Method(NEAR, 0.0, codec, near=True))
            for name in (name for name in SELECTING if name in self.strategies):
                if name == "craft" and self.chooser == "none":
                    continue
                selects = self.selects if name == "fusion" else (None,)
                near = STRATEGIES[name].near and self.chooser != "none"
                found += [Method(name, ratio, codec, select, near) for ratio in self.ratios for select in selects]
        return tuple(dict.fromkeys(found))


@dataclass(frozen=True)
class Outcome:
    """One method on one question: along `full`'s answer, and its own answer where it was asked for one.

    `ttft_ms`: from the start of the plan to the logits of the first token; no retrieval. `logits`: those, float32
    `[vocabulary]`, kept for a dump alone.
    """

    divergence: Divergence
    ttft_ms: float
    tokens_recomputed: int
    tokens_computed: int
    answer: tuple[int, ...] | None = None
    text: str = ""
    logits: torch.Tensor | None = field(default=None, repr=False)


def _known(option: str, named: tuple[str, ...], known: tuple[str, ...]) -> None:
    for name in named:
        if name not in known:
            raise BenchRefused(f"{option}: {name!r} is unknown: choose of {', '.join(known)}")
