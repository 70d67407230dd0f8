"""Show what jobs give when they are done; until then, say so."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import CancelledError, Future
from html import escape
from typing import Any

import streamlit as st

from pattern_studio import StudioError

POLL = 0.1  # seconds between looks, and the longest that a visitor's next action waits for this page to give way


def when_done(
    jobs: list[Future[Any]], show: Callable[..., None], waiting: str, meanwhile: Callable[[], None] = lambda: None
) -> None:
    """Call `show` with the results, here; until they are there, draw `meanwhile` and say `waiting`.

    Call it last on a page. It does wait, but every word of it is a point where Streamlit lets the visitor's next
    action overtake: nothing is blocked. (A fragment on a timer would not wait; its runs can swallow a click that
    comes at the same moment.)
    """
    place = st.empty()
    if not all(job.done() for job in jobs):
        with place.container():
            meanwhile()
            note = st.empty()
            begin = time.monotonic()
            while not all(job.done() for job in jobs):
                note.html(
                    f'<div class="ps-note" role="status">{escape(waiting)} {time.monotonic() - begin:.0f} s</div>'
                )
                time.sleep(POLL)
    try:
        results = [job.result() for job in jobs]
    except CancelledError:  # given up for a later wish of this visitor, whose page this no longer is
        return
    except StudioError as error:
        place.html(f'<div class="ps-note" role="alert">Not measured on this capture: {escape(str(error)[:400])}</div>')
        return
    with place.container():
        show(*results)
