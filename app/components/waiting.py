"""Show what jobs give when they are done; until then, say so."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError, Future, wait
from html import escape
from typing import Any

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from pattern_studio import StudioError

from ..jobs import Wish
from ..tasks import Stopped

POLL = 0.1  # seconds between looks, and the longest that a visitor's next action waits for this page to give way
WAITS = "ps-waits"  # marks a line beside figures that are not this pattern's, or not yet
FAINT, NOTHING = "Faint is what was measured before.", "Nothing was changed."  # when it was stopped
AWAITED = "awaited"  # begins the key of the line with its Stop
SOON = 0.3  # seconds in which nothing is said of what is quick as a rule: the words would only flicker
LONG = 1.0  # seconds after which a Stop is offered: before that it would only flicker


def when_done(jobs: Sequence[Future[Any]], show: Callable[..., None], waiting: str, older: str = NOTHING) -> None:
    """Call `show` with the results, here; until they are there, say `waiting`. As `awaited`: last on a page."""
    place = st.empty()
    with place.container():
        results = awaited(jobs, waiting, older=older)
    if results is not None:
        with place.container():
            show(*results)


def soon(jobs: Sequence[Future[Any]]) -> bool:
    """Wait a moment; whether the jobs' results are there then."""
    wait(jobs, SOON)
    return all(map(has, jobs))


def soon_or_awaited(jobs: Sequence[Future[Any]], waiting: str) -> list[Any] | None:
    """As `awaited` for what is quick as a rule: nothing is said for a moment, and then above all that follows.

    The style sheet lets the line take no room: it lies over what was drawn before.
    """
    place = st.empty()
    if soon(jobs):
        return [job.result() for job in jobs]
    with place.container(key="laying-above"):
        results = awaited(jobs, waiting, older="")
    if results is not None:
        place.empty()
    return results


def has(job: Future[Any]) -> bool:
    """Whether the job's result is there: not stopped, given up or failed."""
    return job.done() and not job.cancelled() and job.exception() is None


def stopped(job: Future[Any]) -> bool:
    """Whether the visitor has stopped it."""
    return isinstance(job, Wish) and job.stopped


def awaited(jobs: Sequence[Future[Any]], waiting: str, done: str = "", older: str = NOTHING) -> list[Any] | None:
    """The results, or None; a line here says `waiting`, and `done` at the end. What takes long can be stopped.

    `older` tells a visitor who stopped it what the page then shows.

    Call it last on a page. It does wait, but every word of it is a point where Streamlit lets the visitor's next
    action overtake: nothing is blocked. (A fragment on a timer would not wait; its runs can swallow a click that
    comes at the same moment.)
    """
    wishes = [job for job in jobs if isinstance(job, Wish)]
    if any(map(stopped, jobs)):
        with st.container(horizontal=True, vertical_alignment="center", gap="small"):
            st.html(_line(f"Stopped before it was done. {older}", WAITS), width="content")
            _button(st.empty(), "Begin again", waiting, lambda: [wish.again() for wish in wishes])
        return None
    ready = all(job.done() for job in jobs)
    words = done if ready else waiting
    with st.container(gap=None, key=f"{AWAITED} {waiting}"):
        # Words at once where there will be some: were the line emptied first, all below would move up for a frame.
        note = st.html(_line(words, "" if ready else WAITS)) if words else st.empty()
        # Not in a row: there most clicks were lost, as if the button were made anew whenever the words change. The
        # style sheet lays it behind the words, so that nothing moves when it comes and goes.
        button, begin, offered = st.empty(), time.monotonic(), False
    while not all(job.done() for job in jobs):
        seconds = time.monotonic() - begin
        note.html(_line(waiting, WAITS, seconds=f"{seconds:.0f} s"))
        if seconds > LONG and not offered:
            offered = True
            _button(button, "Stop", waiting, lambda: [wish.stop() for wish in wishes])
        time.sleep(POLL)
    if offered:
        button.empty()
    try:
        results = [job.result() for job in jobs]
    except (CancelledError, Stopped):  # given up for what this visitor did next, whose page this no longer is
        return None
    except StudioError as error:
        note.html(_line(f"Not measured on this capture: {str(error)[:400]}", role="alert"))
        return None
    if not ready and done:
        note.html(_line(done))
    return results


def _line(words: str, more: str = "", role: str = "status", seconds: str = "") -> str:
    since = f' <span class="ps-seconds">{seconds}</span>' if seconds else ""
    return f'<div class="ps-note {more}" role="{role}">{escape(words)}{since}</div>'


def _button(place: DeltaGenerator, label: str, waiting: str, clicked: Callable[[], Any]) -> None:
    place.button(label, type="tertiary", key=f"{label} {waiting}", on_click=clicked, width="content")
