"""Tasks: work of many seconds that a page watches while it runs, and that its visitor can stop.

Jobs (jobs.py) are figures that pages ask for and visitors share; a task belongs to the one who began it with a button.
Tasks have a worker of their own, so that figures do not wait for them.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from threading import Event, Lock
from typing import Any

import streamlit as st

from .stop_points import calls_of_ours


class Stopped(Exception):  # noqa: N818 - not a fault: what was asked for
    """Raised inside a task that its visitor has stopped."""


class Task:
    """Work on its way. `words` says what it does now, `done` of `of` steps are behind it.

    Inside, the work calls `say` between its steps and lets `watching` look on during a long one; either raises Stopped
    once the visitor has had enough.
    """

    def __init__(self, of: int) -> None:
        self.words, self.done, self.of = "Waiting for its turn", 0, of
        self.began = time.monotonic()
        self.future: Future[Any] = Future()
        self._stop = Event()

    def say(self, words: str, done: int, of: int | None = None) -> None:
        """What is done next, how many steps are behind, and of how many where that has become known."""
        self.check()
        self.words, self.done, self.of = words, done, of or self.of

    def stop(self) -> None:
        """End it: at once where it still waits, else at its next look."""
        self._stop.set()
        self.future.cancel()

    def check(self) -> None:
        """Raise Stopped if the visitor has stopped it."""
        if self._stop.is_set():
            raise Stopped

    @property
    def stopped(self) -> bool:
        """Whether the visitor has stopped it; the work may still be on its way out."""
        return self._stop.is_set()

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Inside, all calls into torch and of our functions on this thread are points where it can be stopped."""
        import torch
        from torch.overrides import TorchFunctionMode

        check = self.check

        class Watch(TorchFunctionMode):
            def __torch_function__(self, func, types, args=(), kwargs=None):
                check()
                return func(*args, **(kwargs or {}))

        # Entering and leaving no_grad are calls into torch too: one that is stopped there leaves gradients off.
        with torch.set_grad_enabled(torch.is_grad_enabled()), Watch(), calls_of_ours(check):
            yield


class Tasks:
    """The newest task of each visitor and kind; the `kept` newest of all stay.

    >>> tasks = Tasks(kept=2)
    >>> tasks.begin("visitor", "sum", 1, lambda task: 2 + 3).future.result()
    5
    """

    def __init__(self, kept: int) -> None:
        self._kept = kept
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="studio-task")
        self._tasks: OrderedDict[Hashable, Task] = OrderedDict()
        self._lock = Lock()

    def begin(self, visitor: str, kind: str, of: int, work: Callable[[Task], Any]) -> Task:
        """Begin work of `of` steps; the visitor's task of this kind before it is stopped."""
        task = Task(of)
        with self._lock:
            self._forget((visitor, kind))
            self._tasks[visitor, kind] = task
            while len(self._tasks) > self._kept:
                self._forget(next(iter(self._tasks)))
        self._worker.submit(run, task, work)
        return task

    def of(self, visitor: str, kind: str) -> Task | None:
        """The visitor's task of this kind, on its way or finished."""
        return self._tasks.get((visitor, kind))

    def forget(self, visitor: str, kind: str) -> None:
        """Stop it and let its result go."""
        with self._lock:
            self._forget((visitor, kind))

    def _forget(self, key: Hashable) -> None:
        task = self._tasks.pop(key, None)
        if task is not None:
            task.stop()


def run(task: Task, work: Callable[[Task], Any]) -> None:
    """Do the work of a task on this thread, unless it has been stopped; its future takes what comes of it."""
    if not task.future.set_running_or_notify_cancel():
        return
    try:
        task.check()
        task.future.set_result(work(task))
    except Stopped:
        # A new one: the one that was raised holds all that the work was in the middle of, memory and open blocks.
        task.future.set_exception(Stopped())
    except BaseException as error:  # kept for whoever asks for the result
        task.future.set_exception(error)


@st.cache_resource(show_spinner=False)
def tasks() -> Tasks:
    """The tasks of this server."""
    return Tasks(kept=32)
