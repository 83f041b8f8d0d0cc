"""Documents for a bench, stored the way the product stores them, in a data folder of the bench's own."""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from appliance.benches.base import BenchRefused, Progress
from appliance.benches.datasets import QuestionSet, read_question_set
from appliance.demo import DEMO_QUESTIONS, sample_folder
from appliance.ingest import IngestProgress, IngestReport
from appliance.parsing import find_documents
from appliance.service import Appliance
from appliance.settings import DEFAULT_COLLECTION, Settings
from storage.home import Home
from storage.scratch import scratch_folder

# A bench of single questions needs a crowd to retrieve from, not a library.
LARGEST_CORPUS_DOCUMENTS = 120
_OPENING_WORDS = 10


@dataclass(frozen=True)
class BenchCorpus:
    """An open appliance with KV of every chunk ready, and questions about its documents."""

    appliance: Appliance
    questions: tuple[str, ...]
    ingest: IngestReport
    name: str


@contextmanager
def open_corpus(settings: Settings, data: Sequence[Path], questions: int, progress: Progress) -> Iterator[BenchCorpus]:
    """Ingest `data` (the sample folder if empty) below the data folder, on the disk that is to be measured.

    Everything is removed afterwards, after a kill by the next command that writes. Raises BenchRefused where the data
    hold nothing to ask about.
    """
    with scratch_folder(Home(settings.home)) as root:
        paths, asked, name = _gather(data, root / "documents", questions)
        own = replace(settings, home=root / "home")
        with Appliance.open(own) as appliance:

            def tell(step: IngestProgress) -> None:
                progress("reading" if step.stage == "kv" else "parsing", step.chunks_done, step.chunks_total)

            report = appliance.ingest(paths, progress=tell)
            if report.error is not None or not report.chunks:
                raise BenchRefused(f"{name} could not be ingested ({report.error or 'no text'}): name other data")
            asked = asked or _questions_from_text(appliance, questions)
            appliance.prepare(DEFAULT_COLLECTION)
            yield BenchCorpus(appliance, tuple(asked[:questions]), report, name)


def _gather(data: Sequence[Path], folder: Path, questions: int) -> tuple[list[Path], list[str], str]:
    """Paths to ingest, questions that come with them, and a name."""
    if not data:
        return [sample_folder()], [question.text for question in DEMO_QUESTIONS], "sample folder"
    paths: list[Path] = []
    asked: list[str] = []
    for path in data:
        if path.is_dir() or find_documents([path]).accepted:
            paths.append(path)
            continue
        found = read_question_set(path)
        paths.append(_write_documents(found, folder / path.stem))
        usable = [q.text for q in found.questions if all(index < LARGEST_CORPUS_DOCUMENTS for index in q.gold)]
        asked += usable[:: max(1, len(usable) // questions)]
    return paths, asked, ", ".join(path.name for path in data)


def _write_documents(found: QuestionSet, folder: Path) -> Path:
    folder.mkdir(parents=True)
    for number, document in enumerate(found.documents[:LARGEST_CORPUS_DOCUMENTS]):
        heading = f"# {document.title}\n\n" if document.title else ""
        (folder / f"{number:05}.md").write_text(heading + document.text, encoding="utf-8")
    return folder


def _questions_from_text(appliance: Appliance, questions: int) -> list[str]:
    """Documents without questions are asked about the openings of their own chunks, evenly spread."""
    chunks = [chunk for document in appliance.catalog.documents() for chunk in appliance.catalog.chunks_of(document.id)]
    step = max(1, len(chunks) // questions)
    openings = [re.findall(r"[^\W_]+", chunk.text)[:_OPENING_WORDS] for chunk in chunks[::step]]
    asked = [f"What is said about {' '.join(words)}?" for words in openings if words]
    if not asked:
        raise BenchRefused("the data hold no words to ask about: name other data")
    return asked
