"""Long work beside the pages, so that a page answers at once and fills in what takes seconds.

Mostly one worker for all sessions: the machine's cores are better spent on one job than torn between two. A
session that wants something else gives up what it wanted before, unless that has begun; what has begun ends
early where its visitor stops it and nobody else wants it. What nobody would come back for (`ends`) ends early, too,
where its session wants something else.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import CancelledError, Future, InvalidStateError, ThreadPoolExecutor
from contextlib import suppress
from threading import Lock
from typing import Any, Generic, TypeVar

from .stop_points import calls_of_ours
from .tasks import Stopped, Task, run

T = TypeVar("T")


class Wish(Future[T]):
    """A job as one session sees it: its result, or Stopped from the moment the visitor stops it until `again`."""

    def __init__(self, jobs: Jobs[T], session: str, key: Hashable) -> None:
        super().__init__()
        self._of = jobs, session, key

    def stop(self) -> None:
        """Wait no longer; the job itself ends at its next look, unless another visitor wants it."""
        jobs, session, key = self._of
        if not self.done():
            jobs._stop(session, key)
            with suppress(InvalidStateError):  # done in between
                self.set_exception(Stopped())

    @property
    def stopped(self) -> bool:
        """Whether the visitor has stopped it."""
        return self.done() and not self.cancelled() and isinstance(self.exception(), Stopped)

    def again(self) -> None:
        """Let the next who asks begin it anew."""
        jobs, session, _ = self._of
        jobs._stopped.pop(session, None)

    def _take(self, job: Future[T]) -> None:
        with suppress(InvalidStateError, CancelledError):  # stopped before, or given up while it waited
            if job.cancelled():
                self.cancel()
            elif error := job.exception():
                self.set_exception(error)
            else:
                self.set_result(job.result())


class Jobs(Generic[T]):
    """Results by key, computed once each; the `kept` newest stay.

    A session is a visitor's name, followed by a space and more where one visitor wants several things at once.
    With `ends` a job that has begun is stopped once the last session that wants it asks for another.

    >>> jobs = Jobs(kept=2)
    >>> jobs.wait("visitor", "six", lambda: 2 * 3)
    6
    """

    def __init__(self, kept: int, workers: int = 1, ends: bool = False) -> None:
        self._kept, self._ends = kept, ends
        self._worker = ThreadPoolExecutor(workers, thread_name_prefix="studio-job")
        self._jobs: OrderedDict[Hashable, Task] = OrderedDict()
        self._wanted: OrderedDict[str, Hashable] = OrderedDict()
        self._stopped: OrderedDict[str, Hashable] = OrderedDict()
        self._lock = Lock()

    def ask(self, session: str, key: Hashable, work: Callable[[], T]) -> Wish[T]:
        """The job of this key, begun or finished; what the session asked for before is given up if still waiting.

        Where jobs end that are no longer wanted, it is also given up if it has begun.

        One that the session has stopped is not begun again before `again`, or before it has asked for another.
        """
        wish = Wish(self, session, key)
        with self._lock:
            if self._stopped.get(session) == key and key not in self._jobs:
                wish.set_exception(Stopped())
                return wish
            self._stopped.pop(session, None)
            before = self._wanted.pop(session, None)
            self._wanted[session] = key
            if before is not None and before != key and before not in self._wanted.values():
                older = self._jobs.get(before)
                if older is not None and (older.future.cancel() or (self._ends and not older.future.done())):
                    self._jobs.pop(before).stop()
            if key not in self._jobs:
                self._jobs[key] = Task(1)
                self._worker.submit(run, self._jobs[key], lambda task: _stoppable(task, work))
            self._jobs.move_to_end(key)
            while len(self._jobs) > self._kept:
                self._jobs.popitem(last=False)[1].future.cancel()
            for sessions in (self._wanted, self._stopped):
                while len(sessions) > self._kept:  # sessions that are long gone
                    sessions.popitem(last=False)
            job = self._jobs[key].future
        job.add_done_callback(wish._take)
        return wish

    def wait(self, session: str, key: Hashable, work: Callable[[], T]) -> T:
        """The result, waited for; raises what the work raised."""
        try:
            return self.ask(session, key, work).result()
        except CancelledError:  # given up by the session's own later wish
            return self.wait(session, key, work)

    def _stop(self, session: str, key: Hashable) -> None:
        visitor = session.partition(" ")[0]
        with self._lock:
            self._stopped[session] = key
            for name in [name for name, wanted in self._wanted.items() if wanted == key]:
                if name.partition(" ")[0] == visitor:
                    del self._wanted[name]
            if key in self._jobs and key not in self._wanted.values():
                self._jobs.pop(key).stop()


def _stoppable(task: Task, work: Callable[[], Any]) -> Any:
    """The work; every call of a function of ours is a point to stop at."""
    with calls_of_ours(task.check):
        return work()
