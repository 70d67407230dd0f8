"""A task on a page: how far it is, a button that stops it, and in the end what it gave."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import CancelledError
from html import escape
from typing import Any

import streamlit as st

from pattern_studio import StudioError

from ..tasks import Stopped, Task
from .waiting import POLL


def render(task: Task, name: str, show: Callable[[Any], None]) -> None:
    """Draw the task until it is done, then `show` its result, or why there is none.

    Call it last on a page. It waits as `when_done` does: the visitor's next action overtakes it at every word.
    """
    place = st.empty()
    if not task.future.done() and not task.stopped:
        with place.container(gap="small", key=f"task-{name}"):
            bar = st.progress(0.0)
            st.button("Stop", icon=":material/stop_circle:", key=f"stop {name}", on_click=task.stop)
            while not task.future.done() and not task.stopped:
                seconds = time.monotonic() - task.began
                text = f"{task.words} …  step {min(task.done + 1, task.of)} of {task.of}, {seconds:.0f} s"
                bar.progress(min(task.done / task.of, 1.0), text)
                time.sleep(POLL)
    if task.stopped:
        place.html('<div class="ps-note" role="status">Stopped; nothing was changed.</div>')
        return
    try:
        result = task.future.result()
    except (CancelledError, Stopped):  # stopped between the two looks
        return
    except StudioError as error:
        place.html(f'<div class="ps-wrong" role="alert">{escape(str(error)[:600])}</div>')
        return
    with place.container():
        show(result)
