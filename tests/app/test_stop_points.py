"""Work is broken off where a function of ours begins: early enough, and never where something is being tidied up."""

from __future__ import annotations

import sys

import pytest
from pattern_studio_app.stop_points import calls_of_ours

import pattern_studio as ps


class Enough(Exception):  # noqa: N818
    """What a test stops with."""


def stopping_at(limit: int):
    """A check that counts, and raises at the limit-th look."""
    looks = []

    def check() -> None:
        looks.append(sys._getframe(2).f_code.co_name)
        if len(looks) == limit:
            raise Enough

    return check, looks


def lowered() -> ps.BlockLayout:
    return ps.lower(ps.parse("causal & (random(3) | sink(4))"), q_len=64, block=8)


def test_lowering_can_be_broken_off_at_every_one_of_its_calls_and_is_whole_when_done_again():
    expected = lowered()
    check, looks = stopping_at(0)
    with calls_of_ours(check):
        again = lowered()
    assert again == expected
    whole = len(looks)
    assert whole > 50
    assert "lower" in looks
    for limit in range(1, whole + 1, 7):
        check, looks = stopping_at(limit)
        with pytest.raises(Enough), calls_of_ours(check):
            lowered()
        assert len(looks) == limit
    assert lowered() == expected


def test_who_looks_on_already_does_so_afterwards():
    seen = []

    def other(frame, event, arg) -> None:
        seen.append(event)

    before = sys.getprofile()
    sys.setprofile(other)
    try:
        with pytest.raises(Enough), calls_of_ours(stopping_at(1)[0]):
            lowered()
        assert sys.getprofile() is other
    finally:
        sys.setprofile(before)


def test_what_is_not_ours_and_what_tidies_up_is_not_broken_off():
    ours = sys.modules["pattern_studio.lowering.analytic"].__file__
    made: dict = {}
    source = """
from contextlib import contextmanager
log = []
class Block:
    def __enter__(self): log.append("in")
    def __exit__(self, *raised): log.append("out")
@contextmanager
def block():
    log.append("begin")
    yield
    log.append("end")
def plain(): log.append("plain")
def work():
    with Block(), block():
        log.append("inside")
    plain()
"""
    exec(compile(source, ours, "exec"), made)  # as if it stood in a file of ours
    check, looks = stopping_at(0)
    with calls_of_ours(check):
        made["work"]()
        sorted([2, 1], key=lambda n: n)
    assert looks == ["work", "plain"]
    assert made["log"] == ["in", "begin", "inside", "end", "out", "plain"]
