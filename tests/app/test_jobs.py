"""Work beside the pages: once per key, bounded, and given up when nobody wants it any more."""

from __future__ import annotations

import sys
from threading import Event

import pytest
import torch
from pattern_studio_app.jobs import Jobs
from pattern_studio_app.tasks import Stopped

import pattern_studio as ps
from pattern_studio.capture import bundled
from pattern_studio.metrics import block_mass


def test_a_result_is_computed_once():
    calls, jobs = [], Jobs(kept=4)
    for visitor in "ab":
        assert jobs.ask(visitor, "key", lambda: calls.append(1) or len(calls)).result(10) == 1


def test_what_a_session_no_longer_wants_is_given_up_unless_it_has_begun_or_others_want_it():
    gate, jobs = Event(), Jobs(kept=8)
    running = jobs.ask("a", "running", lambda: gate.wait(10))
    waiting = jobs.ask("a", "waiting", lambda: 1)
    shared = jobs.ask("b", "shared", lambda: 2)
    jobs.ask("a", "shared", lambda: 2)
    jobs.ask("b", "other", lambda: 3)
    assert waiting.cancelled()
    gate.set()
    assert running.result(10) is True
    assert shared.result(10) == 2


def test_only_the_newest_are_kept():
    jobs = Jobs(kept=2)
    first = jobs.ask("a", 0, lambda: object()).result(10)
    for key in (1, 2):
        jobs.ask("a", key, lambda: object()).result(10)
    assert jobs.ask("a", 0, lambda: object()).result(10) is not first


def test_errors_reach_who_asks():
    def wrong() -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        Jobs(kept=2).ask("a", "key", wrong).result(10)


def spinning(begun: Event):
    """Work of ours, in numpy alone, that ends only by being stopped."""

    def work() -> None:
        while True:
            ps.lower(ps.causal, q_len=2)
            begun.set()

    return work


def test_a_stopped_job_ends_in_its_middle_and_begins_anew_when_asked_to():
    jobs, begun = Jobs(kept=4), Event()
    wish = jobs.ask("a", "key", spinning(begun))
    assert begun.wait(10)
    wish.stop()
    with pytest.raises(Stopped):
        wish.result(0)
    assert jobs.ask("b", "other", lambda: 2).result(10) == 2  # the worker is free
    with pytest.raises(Stopped):
        jobs.ask("a", "key", lambda: 3).result(0)  # not before `again`
    wish.again()
    assert jobs.ask("a", "key", lambda: 3).result(10) == 3


def test_a_stop_is_one_visitors_own_and_forgotten_with_the_next_wish():
    jobs, gate = Jobs(kept=4), Event()

    def work() -> int:
        assert gate.wait(10)
        return ps.lower(ps.causal, q_len=1).pairs + 1

    one, same, other = (jobs.ask(session, "key", work) for session in ("a", "a more", "b"))
    one.stop()
    gate.set()
    assert (other.result(10), same.result(10)) == (2, 2)  # b still wanted it
    begun = Event()
    one = jobs.ask("a", "long", spinning(begun))
    jobs.ask("a more", "long", spinning(begun))
    assert begun.wait(10)
    one.stop()  # also where the visitor had asked for it under another name
    jobs.ask("a", "next", lambda: 4).result(10)
    assert jobs.ask("a", "long", lambda: 5).result(10) == 5


def test_a_finished_job_can_not_be_stopped():
    wish = Jobs(kept=2).ask("a", "key", lambda: 1)
    assert wish.result(10) == 1
    wish.stop()
    assert wish.result(0) == 1


def test_where_jobs_end_the_next_wish_stops_what_nobody_else_wants_and_does_not_wait_for_it():
    jobs, begun, gate = Jobs(kept=8, workers=2, ends=True), Event(), Event()
    older = jobs.ask("a", "older", spinning(begun))
    assert begun.wait(10)
    assert jobs.ask("a", "next", lambda: 2).result(10) == 2
    with pytest.raises(Stopped):
        older.result(10)
    assert jobs.ask("a", "older", lambda: 3).result(10) == 3  # not a stop of the visitor's: it may begin anew
    shared = jobs.ask("b", "shared", lambda: gate.wait(10) and ps.lower(ps.causal, q_len=1).pairs)
    jobs.ask("a", "shared", lambda: 0)
    assert jobs.ask("a", "next", lambda: 0).result(10) == 2  # and what was done stays
    gate.set()
    assert shared.result(10) == 1


def test_what_is_stopped_between_two_chunks_leaves_the_worker_as_it_was():
    jobs, begun = Jobs(kept=4), Event()

    def work() -> None:
        while True:
            block_mass(bundled(), layer=7, block=256)  # a generator is in the middle of its no_grad
            begun.set()

    for n in range(5):
        wish = jobs.ask("a", n, work)
        assert begun.wait(10)
        begun.clear()
        wish.stop()
        assert jobs.ask("b", ("grad", n), torch.is_grad_enabled).result(10)
    assert jobs.ask("b", "profile", sys.getprofile).result(10) is not None  # watched, as every job
