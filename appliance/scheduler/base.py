"""The contract of the scheduler: what a question's request is, and where it can be.

FusionRAG's asynchronous KVCache scheduler (arXiv 2601.12904, §4.2), in three parts, each a thread of its own:

- `scheduling.py` takes questions in their order, retrieves and plans, and ends what has ended;
- `loading.py` begins the loads of a planned question, into an arena of its own;
- `inference.py` alone runs the language model: the pass of one request, or one decode step of all that run.

They share a `Board`, and sleep until it changes. Every request goes one way: WAITING, PREPARING, LOADING, LANDING,
COMPUTING, RUNNING, ENDING, ENDED; it may leave for ENDING from anywhere.
"""

import threading
from dataclasses import dataclass, field
from enum import Enum

from appliance.answering import Answerer
from appliance.reply import Question, Reply
from appliance.scheduler.channel import Channel
from models.arena import Arena
from models.decoding import Greedy
from models.execution import Begun
from storage.catalog import CollectionRow


@dataclass(frozen=True)
class SchedulerSettings:
    """`arenas`: how many questions are loaded and answered at once; `queue`: how many more may wait.

    `ahead_tokens`: how far an answer may be ahead of who reads it. Then it pauses, and the others go on.
    """

    arenas: int = 4
    queue: int = 32
    ahead_tokens: int = 4


class Place(Enum):
    """Where a request is. In PREPARING, LOADING and COMPUTING one thread has it to itself."""

    WAITING = "waiting"
    PREPARING = "preparing"
    LOADING = "loading"
    LANDING = "landing"  # its blocks are on their way, or there
    COMPUTING = "computing"
    RUNNING = "running"
    ENDING = "ending"
    ENDED = "ended"


@dataclass(eq=False)
class Request:
    """One question on its way. With `keep` the store is repaired and filled afterwards.

    `stop` ends the answer with what is there; `cancelled` ends it for nobody.
    """

    question: Question
    collection: CollectionRow
    answerer: Answerer
    keep: bool
    channel: Channel
    stop: threading.Event | None = None
    place: Place = Place.WAITING
    cancelled: bool = False
    finished: bool = False  # every token came
    arena: Arena | None = None
    reply: Reply | None = None
    begun: Begun | None = None
    row: Greedy | None = None
    unkept: list[str] = field(default_factory=list)
    error: Exception | None = None

    @property
    def unwanted(self) -> bool:
        """Whether nothing more is to be done for it."""
        return self.cancelled or (self.stop is not None and self.stop.is_set())
