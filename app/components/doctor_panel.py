"""The doctor beside an export: what does not fit the target, and a button for changes that a form can make."""

from __future__ import annotations

from html import escape

import streamlit as st

from pattern_studio.exporters import Diagnosis
from pattern_studio.exporters.doctor import Case

from .. import exporting, session
from ..events import Opened, TargetChosen, TensorsSet
from ..session import follow, on, sends
from ..state import State
from .figures_panel import group
from .waiting import when_done

MOST = 6  # parts with a button of their own


def render(state: State) -> None:
    """Draw what is asked and, once it is found, the answer."""
    group("Doctor", "what fits, and what to change", first=True)
    with st.container(horizontal=True, gap="small"):
        _number("head_dim", "Head dimension", state.head_dim, 1024, "Of q, k and v, in channels.")
        _number(
            "kv_heads",
            "KV heads",
            exporting.kv_heads(state),
            state.shown.heads,
            "As many as query heads, or fewer where query heads share them.",
        )
    if exporting.is_long(state.shown) and not st.toggle("Look at it, which may take minutes", key="ask the doctor"):
        return
    jobs = [exporting.doctor_job(session.visitor(), state)]
    when_done(jobs, lambda found: _answer(state, found), "The doctor looks at it …")


def _number(field: str, label: str, value: int, high: int, text: str) -> None:
    key = follow(field, value)
    st.number_input(
        label, 1, high, value, step=1, key=key, on_change=on(key, lambda n: TensorsSet(field, n)), help=text, width=130
    )


def _answer(state: State, found: Diagnosis) -> None:
    if found.fits:
        st.html('<div class="ps-note" role="status"><b>Fits as it is.</b></div>')
    for finding in found.findings:
        keeps = "" if finding.keeps else '<br><i class="ps-note">This changes what is attended to.</i>'
        st.html(
            f'<div class="ps-note">{escape(finding.why)}</div>'
            f'<div style="padding-left:12px"><b>&rarr;</b> {escape(finding.change)}{keeps}</div>'
        )
    if found.reason:
        st.html(
            f'<div class="ps-note">{escape(found.reason)}</div><div><b>No change was found that makes it fit.</b></div>'
        )
    _changes(state, found)
    for note in found.notes:
        st.html(f'<div class="ps-note">{escape(note)}</div>')
    if found.elsewhere:
        st.html('<div class="ps-note">Held exactly, as it is, by:</div>')
        with st.container(horizontal=True, gap="xsmall", key="elsewhere"):
            for name in found.elsewhere:
                st.button(name, key=f"elsewhere {name}", type="tertiary", on_click=sends(TargetChosen(name)))


def _changes(state: State, found: Diagnosis) -> None:
    """Buttons for what text and problem can say; the rest is done to the tensors, or with the switch at the file."""
    if len(found.cases) == 1:
        work = exporting.work_of(found.cases[0], state.shown)
        if work is not None:
            st.button(
                "Change it so",
                icon=":material/healing:",
                key="mend",
                type="primary",
                help="Changes the text and the problem as said; undo brings them back.",
                on_click=sends(Opened(work)),
            )
        return
    for n, case in enumerate(found.cases[:MOST]):
        work = exporting.work_of(case, state.shown)
        if work is not None:
            st.button(_part(case), key=f"mend {n}", on_click=sends(Opened(work)), help=str(case.pattern)[:300])
    if len(found.cases) > MOST:
        st.html(f'<div class="ps-note">and {len(found.cases) - MOST} more parts</div>')


def _part(case: Case) -> str:
    first, last = case.heads[0], case.heads[-1]
    if case.heads == tuple(range(first, last + 1)):
        return f"Open the part of head {first}" if first == last else f"Open the part of heads {first} to {last}"
    return f"Open the part of heads {', '.join(map(str, case.heads))}"
