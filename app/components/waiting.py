"""Show what jobs give when they are done; until then, say so."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError, Future
from html import escape
from typing import Any

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from pattern_studio import StudioError

from ..jobs import Wish
from ..tasks import Stopped

POLL = 0.1  # seconds between looks, and the longest that a visitor's next action waits for this page to give way
LONG = 1.0  # seconds after which a Stop is offered: before that it would only flicker


def when_done(
    jobs: Sequence[Future[Any]], show: Callable[..., None], waiting: str, meanwhile: Callable[[], bool] = lambda: False
) -> None:
    """Call `show` with the results, here; until they are there, draw `meanwhile` and say `waiting`.

    What takes long can be stopped; what `meanwhile` draws, and says by True that it did, then stays.

    Call it last on a page. It does wait, but every word of it is a point where Streamlit lets the visitor's next
    action overtake: nothing is blocked. (A fragment on a timer would not wait; its runs can swallow a click that
    comes at the same moment.)
    """
    place, wishes = st.empty(), [job for job in jobs if isinstance(job, Wish)]
    if any(wish.stopped for wish in wishes):
        with place.container():
            older = " Faint is what was measured before." if meanwhile() else " Nothing was changed."
            with st.container(horizontal=True, vertical_alignment="center", gap="small"):
                st.html(f'<div class="ps-note" role="status">Stopped before it was done.{older}</div>', width="content")
                _button(st.empty(), "Begin again", waiting, lambda: [wish.again() for wish in wishes])
        return
    if not all(job.done() for job in jobs):
        with place.container():
            meanwhile()
            # Not in a row: there most clicks were lost, as if the button were made anew whenever the words change.
            note, button = st.empty(), st.empty()
            begin, offered = time.monotonic(), False
            while not all(job.done() for job in jobs):
                seconds = time.monotonic() - begin
                note.html(f'<div class="ps-note" role="status">{escape(waiting)} {seconds:.0f} s</div>')
                if seconds > LONG and not offered:
                    offered = True
                    _button(button, "Stop", waiting, lambda: [wish.stop() for wish in wishes])
                time.sleep(POLL)
    try:
        results = [job.result() for job in jobs]
    except (CancelledError, Stopped):  # given up for what this visitor did next, whose page this no longer is
        return
    except StudioError as error:
        place.html(f'<div class="ps-note" role="alert">Not measured on this capture: {escape(str(error)[:400])}</div>')
        return
    with place.container():
        show(*results)


def _button(place: DeltaGenerator, label: str, waiting: str, clicked: Callable[[], Any]) -> None:
    place.button(label, type="tertiary", key=f"{label} {waiting}", on_click=clicked, width="content")
