"""Tasks: watched from outside, stopped from outside, one of a kind for each visitor."""

from __future__ import annotations

from contextlib import suppress
from threading import Event, Thread

import pytest
import torch
from pattern_studio_app.tasks import Stopped, Task, Tasks

from pattern_studio import StudioError

WAIT = 60


def test_its_words_and_steps_are_seen_while_it_runs():
    said, go = Event(), Event()

    def work(task: Task) -> str:
        task.say("counting", 1, 4)
        said.set()
        assert go.wait(WAIT)
        task.say("done", 4)
        return "counted"

    task = Tasks(2).begin("one", "count", 2, work)
    assert said.wait(WAIT)
    assert (task.words, task.done, task.of) == ("counting", 1, 4)
    go.set()
    assert task.future.result(WAIT) == "counted"
    assert (task.words, task.done) == ("done", 4)


def test_torch_work_is_stopped_in_its_middle():
    begun = Event()

    def work(task: Task) -> None:
        with task.watching():
            while True:
                torch.ones(2) + 1
                begun.set()

    task = Tasks(2).begin("one", "spin", 1, work)
    assert begun.wait(WAIT)
    task.stop()
    with pytest.raises(Stopped):
        task.future.result(WAIT)
    assert task.stopped


def test_watching_leaves_other_threads_and_later_work_alone():
    task = Task(1)
    seen = []
    with task.watching():
        task.stop()
        other = Thread(target=lambda: seen.append(float(torch.ones(1))))
        other.start()
        other.join(WAIT)
        with pytest.raises(Stopped):
            torch.ones(1)
    assert seen == [1.0]
    assert float(torch.ones(1)) == 1.0


def test_a_stop_on_the_way_into_or_out_of_no_grad_leaves_gradients_on():
    def calls(limit: int) -> int:
        """Torch calls that were looked at, where the visitor stops at one of them."""
        task, looks = Task(1), 0
        check = task.check

        def count() -> None:
            nonlocal looks
            looks += 1
            if looks == limit:
                task.stop()
            check()

        task.check = count
        with suppress(Stopped), task.watching(), torch.no_grad():
            torch.ones(1)
        assert torch.is_grad_enabled()
        return looks

    whole = calls(0)
    assert whole == 3  # into no_grad, ones, and out again
    assert all(calls(limit) >= limit for limit in range(1, whole + 1))


def test_a_new_task_of_a_kind_stops_the_one_before_but_no_other():
    tasks, go = Tasks(3), Event()

    def work(task: Task) -> None:
        assert go.wait(WAIT)
        task.check()

    first, other = tasks.begin("one", "fit", 1, work), tasks.begin("two", "fit", 1, work)
    second = tasks.begin("one", "fit", 1, lambda task: "second")
    go.set()
    assert second.future.result(WAIT) == "second"
    with pytest.raises(Stopped):
        first.future.result(WAIT)
    assert other.future.result(WAIT) is None
    assert (tasks.of("one", "fit"), tasks.of("two", "fit"), tasks.of("two", "record")) == (second, other, None)


def test_a_waiting_task_that_is_stopped_never_begins():
    tasks, go, ran = Tasks(3), Event(), Event()
    tasks.begin("one", "fit", 1, lambda task: go.wait(WAIT))
    waiting = tasks.begin("two", "fit", 1, lambda task: ran.set())
    waiting.stop()
    go.set()
    assert tasks.begin("three", "fit", 1, lambda task: 3).future.result(WAIT) == 3
    assert waiting.future.cancelled()
    assert not ran.is_set()


def test_what_the_work_raises_is_kept_and_old_tasks_are_let_go():
    tasks = Tasks(2)

    def work(task: Task) -> None:
        raise StudioError("expected more, got less; ask for more")

    failed = tasks.begin("one", "fit", 1, work)
    with pytest.raises(StudioError, match="expected more"):
        failed.future.result(WAIT)
    for name in ("two", "three"):
        tasks.begin(name, "fit", 1, lambda task: 1).future.result(WAIT)
    assert tasks.of("one", "fit") is None
    tasks.forget("two", "fit")
    assert tasks.of("two", "fit") is None
