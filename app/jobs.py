"""Long work beside the pages, so that a page answers at once and fills in what takes seconds.

One worker for all sessions: the machine's cores are better spent on one job than torn between two. A
session that wants something else gives up what it wanted before, unless that has begun.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from threading import Lock
from typing import Generic, TypeVar

T = TypeVar("T")


class Jobs(Generic[T]):
    """Results by key, computed once each; the `kept` newest stay.

    >>> jobs = Jobs(kept=2)
    >>> jobs.wait("visitor", "six", lambda: 2 * 3)
    6
    """

    def __init__(self, kept: int) -> None:
        self._kept = kept
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="studio-job")
        self._jobs: OrderedDict[Hashable, Future[T]] = OrderedDict()
        self._wanted: OrderedDict[str, Hashable] = OrderedDict()
        self._lock = Lock()

    def ask(self, session: str, key: Hashable, work: Callable[[], T]) -> Future[T]:
        """The job of this key, begun or finished; what the session asked for before is given up if still waiting."""
        with self._lock:
            before = self._wanted.pop(session, None)
            self._wanted[session] = key
            if before is not None and before != key and before not in self._wanted.values():
                waiting = self._jobs.get(before)
                if waiting is not None and waiting.cancel():
                    del self._jobs[before]
            if key not in self._jobs:
                self._jobs[key] = self._worker.submit(work)
            self._jobs.move_to_end(key)
            while len(self._jobs) > self._kept:
                self._jobs.popitem(last=False)[1].cancel()
            while len(self._wanted) > self._kept:  # sessions that are long gone
                self._wanted.popitem(last=False)
            return self._jobs[key]

    def wait(self, session: str, key: Hashable, work: Callable[[], T]) -> T:
        """The result, waited for; raises what the work raised."""
        try:
            return self.ask(session, key, work).result()
        except CancelledError:  # given up by the session's own later wish
            return self.wait(session, key, work)
