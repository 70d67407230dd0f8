"""Gallery: named patterns with their picture, citation and figures; one click opens any in Design."""

from __future__ import annotations

import re
from html import escape

import streamlit as st

from .. import compute, numbers, session
from ..events import Chosen, Opened
from ..named import Named, captured, named
from ..session import follow, on, sends
from ..state import State
from ..theme import colours

ACROSS = 5
ALL = "All"
ARMS = {"ours": "portable", "hopper": "Hopper"}  # as results call them
ADDRESS = re.compile(r"arXiv:(\d{4}\.\d{5})")
STYLE = """<style>
.ps-card { height: 58px; }
.ps-card b { display: block; overflow: hidden; text-overflow: ellipsis; white-space: nowrap; }
.ps-card a { color: inherit; }
.ps-kept { min-height: 54px; }
</style>"""


def render() -> None:
    """Draw what is asked for, a few cards in a row."""
    state = session.state()
    st.html(STYLE)
    shown = _asked(state)
    for begin in range(0, len(shown), ACROSS):
        for one, column in zip(shown[begin : begin + ACROSS], st.columns(ACROSS, gap="small"), strict=False):
            with column:
                _card(one)
    st.html(
        f'<div class="ps-note">Attention kept: mass recall of {escape(captured())}, tiles of 64; best: the best choice '
        "of as many tiles. Predicted: the cost model's estimate of one forward pass of the text as it is, over 32,768 "
        "tokens on an H100; no measurement. Measured: the faster of our kernels, with card and date under "
        "the pointer.</div>"
    )


def _asked(state: State) -> list[Named]:
    """The patterns of the chosen family that have the typed words."""
    families = [ALL, *dict.fromkeys(one.family for one in named())]
    family, words = state.choice("family", ALL), state.choice("words", "")
    with st.container(horizontal=True, vertical_alignment="center", gap="small", key="gallery-tools"):
        key = follow("family", family)
        st.pills(
            "Family",
            families,
            default=family,
            key=key,
            on_change=on(key, lambda chosen: Chosen("family", chosen or ALL)),
            label_visibility="collapsed",
        )
        key = follow("words", words)
        st.text_input(
            "Search the gallery",
            words,
            key=key,
            on_change=on(key, lambda typed: Chosen("words", typed)),
            live="300ms",
            label_visibility="collapsed",
            placeholder="a name, a paper, a word",
            icon=":material/search:",
            width=260,
        )
    shown = [one for one in named() if family in (ALL, one.family) and one.has(words)]
    if not shown:
        st.html(
            '<div class="ps-note" role="status">No pattern has these words: ask for fewer, or another family.</div>'
        )
    return shown


def _card(one: Named) -> None:
    state = State(work=one.work, shown=one.work)
    _, stats = compute.design(state)
    source = ADDRESS.sub(lambda hit: f'<a href="https://arxiv.org/abs/{hit[1]}">{hit[0]}</a>', escape(one.source))
    with st.container(border=True, gap="xsmall", key=f"card-{one.name}"):
        st.image(compute.thumbnail(state, one.head, 256, colours()), width="stretch", alt=f"Tile map of {one.title}")
        st.html(
            f'<div class="ps-card"><b title="{escape(one.title)}">{escape(one.title)}</b>'
            f'<span class="ps-note" title="{escape(one.source)}">{source}</span></div>'
            f'<div class="ps-note ps-about" title="{escape(one.note)}">{escape(one.note)}</div>'
            f'<div class="ps-note ps-kept">{numbers.percent(stats.density.token)} of all pairs, '
            f"{numbers.percent(stats.density.block)} of tiles<br>{_kept(one)}<br>{_time(one)}</div>"
        )
        st.button(
            "Open in Design",
            key=f"open {one.name}",
            width="stretch",
            on_click=sends(Opened(one.work), leave_for="Design"),
        )


def _kept(one: Named) -> str:
    if one.kept is None:
        return f'<span title="{escape(one.why_not or "")}">attention kept: not measured</span>'
    best = numbers.percent(one.kept["oracle_recall"])
    return f"keeps {numbers.percent(one.kept['recall'])} of attention, best {best}"


def _time(one: Named) -> str:
    """The time of a pass: measured where a benchmark has it, the faster of our kernels; else predicted; so labelled."""
    timed = [row for row in one.measured if row["arm"] in ARMS and row["pass"] == "forward"]
    if timed:
        found = min(timed, key=lambda row: row["ms"])
        same = [row for row in timed if row["card"] == found["card"]]
        each = ", ".join(f"{row['ms']:.3g} ms by the {ARMS[row['arm']]} kernels" for row in same)
        where = f"{found['tokens']:,} tokens, {found['heads']} heads, D {found['head_dim']}"
        docs = f", {len(found['docs'])} documents" if found["docs"] else ""
        beside = f"; dense {found['dense_ms']:.3g} ms" if found["dense_ms"] else ""
        told = escape(f"{found['card']}, {found['date'] or 'no date'}; {where}{docs}; {each}{beside}")
        return f'<span title="{told}">{found["ms"]:.3g} ms a pass, measured</span>'
    if one.predicted is None:
        return '<span title="It ends where it is drawn: documents or a grid.">time: not predicted</span>'
    card = f"{one.predicted['card']}; {one.predicted['tokens']:,} tokens, {one.predicted['heads']} heads"
    return f'<span title="{escape(card)}">{one.predicted["forward_ms"]:.3g} ms a pass, predicted</span>'
