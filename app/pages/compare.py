"""Compare: two or more patterns side by side, where they differ, and what each keeps for its cost."""

from __future__ import annotations

from html import escape

import plotly.graph_objects as go
import streamlit as st

from pattern_studio import BlockLayout, Pattern, StudioError
from pattern_studio.diff import Diff
from pattern_studio.metrics import LayoutStats
from pattern_studio.plot import density_map
from pattern_studio.plot.density import DensityMap
from pattern_studio.plot.tile_map import heatmap

from .. import captures, compute, numbers, session
from ..components import cursor, difference_map, figures_panel, small_map, text_bar, tradeoff
from ..components.waiting import soon_or_awaited, when_done
from ..events import Compared, ZoomedOut
from ..reading import read
from ..session import follow, on, sends
from ..state import State
from ..theme import colours
from ..work import MAX_BESIDE, document_lengths

START = ("causal & window(255, 0)", "causal & (window(127, 0) | sink(4))", "causal")


def render() -> None:
    """Draw the texts, the maps with the difference from A, and the trade-off."""
    state = session.state()
    text_bar.render(state, export=False)
    _texts(state)
    if not state.shown.beside:
        _empty()
        return
    with st.container(gap="xsmall"):  # what is waited for is told at its top
        _sides(state)


def _sides(state: State) -> None:
    visitor = session.visitor()
    readings = zip("BCD", map(read, state.shown.beside), strict=False)
    others = {letter: reading.pattern for letter, reading in readings if reading.pattern is not None}
    try:
        found = soon_or_awaited(
            [
                compute.design_job(f"{visitor} A", state),
                *(compute.beside_job(f"{visitor} {letter}", state, other) for letter, other in others.items()),
            ],
            "Laying the patterns out …",
        )
    except StudioError as error:
        found = [str(error)]
    if found is None:
        return
    first, *rest = found
    if isinstance(first, str):
        _wrong("A", first)
        return
    rivals = []
    for (letter, pattern), beside in zip(others.items(), rest, strict=True):
        if isinstance(beside, str):
            _wrong(letter, beside)
        else:
            rivals.append((letter, pattern, *beside))
    layout, stats = first
    _maps(state, layout, rivals)
    sides: list[Side] = [("A", state.pattern, layout, stats), *(rival[:4] for rival in rivals)]
    docs = document_lengths(state.shown.docs)
    jobs = [
        compute.quality_job(f"{visitor} {letter}", pattern, state.shown.block, docs) for letter, pattern, _, _ in sides
    ]
    when_done(jobs, lambda *reports: _tradeoff(state, sides, reports), "Measuring the patterns on the capture …")


Side = tuple[str, Pattern, BlockLayout, LayoutStats]
Rival = tuple[str, Pattern, BlockLayout, LayoutStats, Diff]


def _wrong(letter: str, why: str) -> None:
    st.html(f'<div class="ps-wrong" role="alert">{letter}: {escape(why[:400])}</div>')


def _texts(state: State) -> None:
    texts = [*state.shown.beside, ""][:MAX_BESIDE]
    for n, (text, column) in enumerate(zip(texts, st.columns(len(texts), gap="small"), strict=True)):
        letter, key = "BCD"[n], follow(f"beside {n}", text)
        with column, st.container(horizontal=True, vertical_alignment="center", gap="small", key=f"beside-{n}"):
            colour = _colours()[n + 1] if text else colours().quiet
            st.html(f'<b class="ps-letter" style="color:{colour}">{letter}</b>', width="content")
            st.text_input(
                f"Pattern {letter}",
                text,
                key=key,
                on_change=on(key, lambda typed, n=n: Compared(n, typed)),
                label_visibility="collapsed",
                placeholder="another pattern to compare with",
                autocomplete="off",
            )
            if text:
                st.button(
                    "",
                    icon=":material/close:",
                    key=f"without {n}",
                    help="Away with it",
                    on_click=sends(Compared(n, "")),
                )
        problem = read(text).problem if text else ""
        if problem:
            column.html(f'<div class="ps-wrong" role="alert">{escape(problem[:300])}</div>')


def _empty() -> None:
    st.html('<div class="ps-note">Write a second pattern above, or begin with one of these:</div>')
    with st.container(horizontal=True, gap="small"):
        for n, text in enumerate(START):
            st.button(text, key=f"start {n}", on_click=sends(Compared(0, text)))


def _colours() -> tuple[str, ...]:
    """Of A, B, C and D."""
    c = colours()
    return c.full, c.only_b, c.only_a, c.ink


def _maps(state: State, layout: BlockLayout, rivals: list[Rival]) -> None:
    """A, B and their difference; of more than two A and each difference, which holds the other, too."""
    columns = iter(st.columns(3 if len(rivals) == 1 else 1 + len(rivals), gap="small"))
    with next(columns):
        _map(state, "A", state.pattern, layout)
    for letter, pattern, other, _, found in rivals:
        if len(rivals) == 1:
            with next(columns):
                _map(state, letter, pattern, other)
        with next(columns):
            _difference(state, letter, pattern, layout, found)
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        st.button(
            "Whole map",
            icon=":material/zoom_out_map:",
            key="whole",
            disabled=state.viewport is None,
            on_click=sends(ZoomedOut()),
        )
        st.html(
            f'<div class="ps-note">Drag a box on any map to zoom all. Differences: {_square("full")} both '
            f"{_square('only-a')} only A {_square('only-b')} only the other.</div>",
            width="content",
        )
        with st.container(width="stretch"):
            sides = [("A", layout), *((letter, other) for letter, _, other, *_ in rivals)]
            cursor.render([(letter, _cells(state, one)) for letter, one in sides])


def _map(state: State, letter: str, pattern: Pattern, layout: BlockLayout) -> None:
    figures_panel.group(letter, str(pattern)[:60], first=True)
    drawn = heatmap(go, _cells(state, layout), "mean", colours())
    drawn.update(hoverinfo="skip", hovertemplate=None)  # the cursor's line says it, for all maps
    small_map.render(letter, drawn, layout, state.viewport, (compute.key_of(state.shown, pattern), state.head))


def _cells(state: State, layout: BlockLayout) -> DensityMap:
    return density_map(layout, state.head, state.viewport, difference_map.CELLS)


def _difference(state: State, letter: str, other: Pattern, layout: BlockLayout, found: Diff) -> None:
    figures_panel.group(f"A and {letter}", _verdict(found.verdict, letter), first=True)
    drawn = difference_map.figure(layout, found, state.head, state.viewport)
    key = (compute.key_of(state.shown, state.pattern), other.hash, state.head)
    small_map.render(f"A and {letter}", drawn, layout, state.viewport, key)
    pairs = found.pairs
    st.html(
        f'<div class="ps-note">pairs: {numbers.count(pairs.both)} in both, '
        f"{numbers.count(pairs.only_a)} only in A, {numbers.count(pairs.only_b)} only in {letter}</div>"
    )


def _verdict(verdict: str, letter: str) -> str:
    return {
        "equal": "keep the same pairs",
        "subset": f"A lies in {letter}, which keeps more",
        "superset": f"{letter} lies in A, which keeps more",
        "crossing": "each keeps what the other does not",
    }[verdict]


def _tradeoff(state: State, sides: list[Side], reports: tuple) -> None:
    rows = [
        (letter, _colours()["ABCD".index(letter)], layout, stats, report)
        for (letter, _, layout, stats), report in zip(sides, reports, strict=True)
    ]
    left, right = st.columns([58, 42], gap="medium")
    with left:
        tradeoff.table(rows)
        st.html(
            '<div class="ps-note">Densities and costs are of the problem, the rest of '
            f"{escape(captures.chosen().title)}. {_square('oracle', '◆')} best choice of as many tiles.</div>"
        )
        against = tradeoff.chooser(rows, state)
    with right:
        tradeoff.chart(rows, against)


def _square(colour: str, sign: str = "■") -> str:
    return f'<span style="color:var(--ps-{colour})">{sign}</span>'
