"""Show what jobs give when they are done, and until then look again every moment."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import CancelledError, Future
from html import escape
from itertools import count
from typing import Any

import streamlit as st

from pattern_studio import StudioError

POLL = 0.3  # seconds between looks at jobs that are still running
SETTLED = 6  # looks at a finished result before the timer is ended


def when_done(
    jobs: list[Future[Any]], show: Callable[..., None], waiting: str, meanwhile: Callable[[], None] = lambda: None
) -> None:
    """Call `show` with the results, or say `waiting` below what `meanwhile` draws, and look again.

    Only this part of the page is drawn again. The timer can be ended by a run of the whole page alone, and
    that waits a little: two runs within a blink can lose what the first one sent to a slow browser.
    """
    on_timer = not all(job.done() for job in jobs)
    looks = count()

    def look() -> None:
        if not all(job.done() for job in jobs):
            meanwhile()
            st.html(f'<div class="ps-note" role="status">{escape(waiting)}</div>')
            return
        if on_timer and next(looks) == SETTLED:
            st.rerun()
        try:
            results = [job.result() for job in jobs]
        except CancelledError:  # given up for a later wish of this visitor, whose page this no longer is
            return
        except StudioError as error:
            st.html(f'<div class="ps-note" role="alert">Not measured on this capture: {escape(str(error)[:400])}</div>')
            return
        show(*results)

    st.fragment(look, run_every=POLL if on_timer else None)()
