"""Work beside the pages: once per key, bounded, and given up when nobody wants it any more."""

from __future__ import annotations

from threading import Event

import pytest
from pattern_studio_app.jobs import Jobs


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
