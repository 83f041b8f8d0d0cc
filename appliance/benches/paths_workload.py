"""Prompts for the storage simulation: drawn as the paper says, or retrieved for real questions."""

import hashlib
import random
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path

from appliance.benches.base import BenchRefused, Progress
from appliance.benches.corpus import TokenStarts, publish_corpus
from appliance.benches.datasets import QuestionSet
from appliance.retrieval import Retriever
from models.embedding import Embedding
from storage.catalog import Catalog, ChunkRow
from storage.home import Home
from storage.lock import HomeLock

SIMULATED = "simulated"
KNOWN, SHARED, UNIQUE = "known", "shared", "unique"
SHARES = {KNOWN: 0.6, SHARED: 0.3, UNIQUE: 0.1}
_SIMULATED_TOKENS = 512


@dataclass(frozen=True)
class AskedChunk:
    """A chunk of a prompt. `kind`: `known` to the knowledge base, `shared` uploads, `unique` ones never seen again."""

    key: str
    tokens: int
    kind: str


@dataclass(frozen=True)
class Workload:
    """`prepared` are read before the first question, each behind the head alone; `prompts` in the order asked."""

    name: str
    prepared: tuple[AskedChunk, ...]
    prompts: tuple[tuple[AskedChunk, ...], ...]


@dataclass(frozen=True)
class Draw:
    """Where the paper is silent. A prompt has `fewest_chunks` to `most_chunks`, all numbers alike.

    `known_chunks` and `shared_chunks` are how many there are to draw from; `skew` is the exponent of Zipf's law, by
    which some are asked for more often than others.
    """

    questions: int = 1000
    seed: int = 20261121
    fewest_chunks: int = 4
    most_chunks: int = 8
    known_chunks: int = 50
    shared_chunks: int = 300
    skew: float = 1.0

    def __post_init__(self) -> None:
        """Raises BenchRefused."""
        if self.questions < 1:
            raise BenchRefused(f"--questions is {self.questions}: ask at least one")
        if not 1 <= self.fewest_chunks <= self.most_chunks:
            raise BenchRefused(f"a prompt of {self.fewest_chunks} to {self.most_chunks} chunks: choose 1 or more")
        if min(self.known_chunks, self.shared_chunks) < self.most_chunks:
            raise BenchRefused(
                f"--known-chunks {self.known_chunks} and --shared-chunks {self.shared_chunks}: a prompt has up to"
                f" {self.most_chunks}, so name at least as many of each"
            )
        if not 0 <= self.skew <= 5:
            raise BenchRefused(f"--skew is {self.skew}: choose 0 (all alike) to 5")


def simulated_workload(draw: Draw) -> Workload:
    """The paper's simulation (FusionRAG section 5.3.3): 60% of chunks known, 30% shared, 10% unique."""
    chooser = random.Random(f"{draw.seed} simulated")  # noqa: S311 - a draw, no secret
    pools = {KNOWN: _pool(KNOWN, draw.known_chunks), SHARED: _pool(SHARED, draw.shared_chunks)}
    weights = {kind: list(accumulate((i + 1) ** -draw.skew for i in range(len(pool)))) for kind, pool in pools.items()}
    prompts = []
    for question in range(draw.questions):
        count = chooser.randint(draw.fewest_chunks, draw.most_chunks)
        chunks: dict[str, AskedChunk] = {}
        for place, kind in enumerate(chooser.choices(list(SHARES), list(SHARES.values()), k=count)):
            chunk = AskedChunk(f"unique {question} {place}", _SIMULATED_TOKENS, UNIQUE)
            while kind != UNIQUE and (chunk.kind == UNIQUE or chunk.key in chunks):  # no chunk stands twice in a prompt
                (chunk,) = chooser.choices(pools[kind], cum_weights=weights[kind])
            chunks[chunk.key] = chunk
        prompts.append(tuple(chunks.values()))
    return Workload(SIMULATED, tuple(pools[KNOWN]), tuple(prompts))


def _pool(kind: str, chunks: int) -> list[AskedChunk]:
    return [AskedChunk(f"{kind} {number}", _SIMULATED_TOKENS, kind) for number in range(chunks)]


def retrieved_workload(
    found: QuestionSet,
    draw: Draw,
    embedding: Embedding,
    token_starts: TokenStarts,
    chunk_tokens: int,
    progress: Progress,
) -> Workload:
    """Real questions, each with the best chunks that retrieval gives, the best last, as in the product's prompts.

    Which chunks are asked for, how often and beside which others is the data's; two thirds of the documents' chunks are
    known beforehand and one third is shared uploads, and each place of a prompt goes to a unique upload one time in
    ten. Raises BenchRefused where the data hold no questions.
    """
    asked = [question.text for question in found.questions]
    if not asked:
        raise BenchRefused(
            f"{found.name} holds no questions: name a question set (SQuAD, NQ, MuSiQue, HotpotQA, JSONL)"
        )
    chooser = random.Random(f"{draw.seed} {found.name}")  # noqa: S311 - a draw, no secret
    if draw.questions < len(asked):
        asked = [asked[index * len(asked) // draw.questions] for index in range(draw.questions)]
    with tempfile.TemporaryDirectory(prefix="appliance-bench-") as folder:
        home = Home(Path(folder) / "home")
        home.create()
        with HomeLock(home), Catalog.open(home) as catalog:
            corpus = publish_corpus(catalog, embedding, found, token_starts, chunk_tokens, progress)
            of = _asked_chunks(catalog, list(corpus.documents), chooser, token_starts)
            retriever = Retriever(catalog, embedding)
            prompts = []
            for number, question in enumerate(asked):
                count = chooser.randint(draw.fewest_chunks, draw.most_chunks)
                hits = retriever.search(corpus.collection_id, question, count)
                prompts.append(_with_uploads([of[hit.chunk_id] for hit in reversed(hits)], number, chooser))
                progress(f"{found.name}: retrieving", number + 1, len(asked))
    prepared = {chunk.key: chunk for chunk in of.values() if chunk.kind == KNOWN}
    return Workload(found.name, tuple(prepared.values()), tuple(prompts))


def _asked_chunks(
    catalog: Catalog, ids: Sequence[int], chooser: random.Random, token_starts: Callable[[str], Sequence[int]]
) -> dict[int, AskedChunk]:
    """Every chunk of the corpus by id; chunks of one text are one chunk, as in the store."""
    known = SHARES[KNOWN] / (SHARES[KNOWN] + SHARES[SHARED])
    by_key: dict[str, AskedChunk] = {}
    found: dict[int, AskedChunk] = {}
    for row in catalog.chunks(ids):
        key = _text_key(row)
        if key not in by_key:
            kind = KNOWN if chooser.random() < known else SHARED
            by_key[key] = AskedChunk(key, max(1, len(token_starts(row.text))), kind)
        found[row.id] = by_key[key]
    return found


def _text_key(row: ChunkRow) -> str:
    return hashlib.sha256(f"{row.title}\0{row.text}".encode()).hexdigest()


def _with_uploads(chunks: list[AskedChunk], question: int, chooser: random.Random) -> tuple[AskedChunk, ...]:
    """The prompt, each place given to an upload of the same length with the share of unique ones."""
    return tuple(
        AskedChunk(f"unique {question} {place}", chunk.tokens, UNIQUE) if chooser.random() < SHARES[UNIQUE] else chunk
        for place, chunk in enumerate({chunk.key: chunk for chunk in chunks}.values())
    )
