"""What the three parts share: where every request is. One lock; each part sleeps on a condition of its own."""

import threading
from collections import deque
from collections.abc import Sequence

from appliance.errors import ApplianceError, Busy
from appliance.scheduler.base import Place, Request, SchedulerSettings
from models.arena import Arena
from models.execution import Begun


class Board:
    """Moves requests. No method waits for the model or a disk, except those named `next_…`, which sleep."""

    def __init__(self, settings: SchedulerSettings, arenas: Sequence[Arena]) -> None:
        self._settings = settings
        # Reentrant: a stream that the garbage collector closes leaves from whichever thread is at hand.
        self.lock = threading.RLock()
        self.changed = threading.Condition(self.lock)  # for the scheduling part
        self._to_load = threading.Condition(self.lock)
        self._to_compute = threading.Condition(self.lock)
        self._idle = threading.Condition(self.lock)
        self.waiting: deque[Request] = deque()
        self.ending: deque[Request] = deque()
        self.abandoned: deque[Begun] = deque()
        self._loading: deque[Request] = deque()
        self._landing: list[Request] = []
        self._running: list[Request] = []
        self._here: set[Request] = set()  # everything that is not ended
        self._arenas = list(arenas)
        self.active = 0  # taken from the queue and not ended
        self.closing = False
        self._cancelled = 0
        self._refused = 0

    def submit(self, request: Request) -> None:
        """Take a place in the queue. Raises Busy, and ApplianceError after closing."""
        with self.lock:
            if self.closing:
                raise _closed()
            if len(self.waiting) >= self._settings.queue:
                self._refused += 1
                raise Busy(f"{len(self.waiting)} questions wait already: ask again in a moment")
            self.waiting.append(request)
            self._here.add(request)
            self.changed.notify()

    def admit(self) -> Request | None:
        """The next request and an arena for it, if there are both."""
        with self.lock:
            if not self.waiting or not self._arenas:
                return None
            request = self.waiting.popleft()
            request.place, request.arena = Place.PREPARING, self._arenas.pop()
            self.active += 1
            return request

    def to_load(self, request: Request) -> None:
        """It is planned."""
        with self.lock:
            if request.unwanted:
                self.end(request)
                return
            request.place = Place.LOADING
            self._loading.append(request)
            self._to_load.notify()

    def next_to_load(self) -> Request | None:
        """For the loading part; None when there will be none."""
        with self.lock:
            self._to_load.wait_for(lambda: self._loading or self._over)
            return self._loading.popleft() if self._loading else None

    def to_land(self, request: Request, begun: Begun) -> None:
        """Its loads have begun."""
        with self.lock:
            request.begun = begun
            if request.unwanted:
                self.end(request)
                return
            request.place = Place.LANDING
            self._landing.append(request)
            self._to_compute.notify()  # who has nothing else to do need not wait until they have landed
        begun.loads.when_landed(self._wake_computing)

    def next_to_compute(self) -> Request | list[Request] | None:
        """For the inference part: a request to read the prompt of, or all whose next token is due; None at the end.

        First whose blocks have landed; one whose blocks are still coming only where no token is due, or where its
        plan says that they take too long.
        """
        with self.lock:
            while True:
                for request in [each for each in self._running if each.unwanted]:
                    self.end(request)
                due = [each for each in self._running if each.channel.has_room]
                ready = next((each for each in self._landing if each.begun is None or each.begun.due), None)
                if ready is None and self._landing and not due:
                    ready = self._landing[0]
                if ready is not None:
                    self._landing.remove(ready)
                    ready.place = Place.COMPUTING
                    return ready
                if due:
                    return due
                if self._over:
                    return None
                self._to_compute.wait()

    def to_run(self, request: Request) -> None:
        """Its prompt was read and tokens are to come."""
        with self.lock:
            if request.place is Place.COMPUTING:
                request.place = Place.RUNNING
                self._running.append(request)

    def end(self, request: Request) -> None:
        """Nothing more is computed for it, in whatever place it was. The scheduling part does the rest."""
        with self.lock:
            for places in (self._landing, self._running):
                if request in places:
                    places.remove(request)
            request.place = Place.ENDING
            self.ending.append(request)
            self.changed.notify()

    def leave(self, request: Request) -> None:
        """It is not wanted any more. What one thread has to itself leaves at that thread's next step."""
        with self.lock:
            if request.place is Place.WAITING:
                self.waiting.remove(request)
                self.active += 1
                self.end(request)
            elif request.place is Place.LANDING:
                self.end(request)
            elif request.place is Place.COMPUTING and request.begun is not None:
                self.abandoned.append(request.begun)
                self.changed.notify()
            self._to_compute.notify()

    def give_arena(self, request: Request) -> None:
        """No thread writes to its arena any more."""
        with self.lock:
            if request.arena is not None:
                self._arenas.append(request.arena)
            request.arena = request.begun = request.row = None
            self.changed.notify()

    def ended(self, request: Request) -> None:
        """It is over, but for the last event."""
        with self.lock:
            request.place = Place.ENDED
            self._here.discard(request)
            self.active -= 1
            self._cancelled += not request.finished and request.error is None
            self._wake_all()

    def close(self) -> None:
        """No request comes any more, and those that are here end."""
        with self.lock:
            self.closing = True
            for request in list(self._here):
                request.error = request.error or _closed()
                request.cancelled = True
                self.leave(request)
            self._wake_all()

    def wait_until_idle(self, seconds: float | None = None) -> bool:
        """Wait until no request is here; False after `seconds`."""
        with self.lock:
            return self._idle.wait_for(lambda: not self.active and not self.waiting, seconds)

    def counts(self) -> dict[str, int]:
        """For `status`; `arenas` are those that are free."""
        with self.lock:
            return {
                "queued": len(self.waiting),
                "running": self.active,
                "cancelled": self._cancelled,
                "refused": self._refused,
                "arenas_free": len(self._arenas),
            }

    @property
    def _over(self) -> bool:
        return self.closing and not self.active and not self.waiting

    def _wake_computing(self) -> None:
        with self.lock:
            self._to_compute.notify()

    drained = _wake_computing

    def _wake_all(self) -> None:
        for condition in (self.changed, self._to_load, self._to_compute, self._idle):
            condition.notify_all()


def _closed() -> ApplianceError:
    return ApplianceError("the appliance was closed: open it again")
