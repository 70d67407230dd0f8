"""Performance: what was measured on which card, beside 1 / density, and how long this pattern would take there."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from html import escape
from typing import Any

import streamlit as st

from pattern_studio import StudioError
from pattern_studio.plot.ticks import label

from .. import compute, session
from ..components import results_menu, speedup_plot, text_bar, time_panel, timing_table
from ..events import PerformanceSet
from ..performance_view import PerformanceView
from ..prediction import MODEL_CARD, Subject, predicted
from ..session import follow, on
from ..state import State
from ..timing_file import TimingFile
from ..timing_folder import installed
from ..timings import BOTH, Measured, measured

DIRECTIONS = {"forward": "Forward", "backward": "Backward", BOTH: "Both"}
DIMS = (64, 128)  # that patterns can be asked about without any results
ALL = -1  # lengths


@dataclass(frozen=True)
class Choices:
    """What can be chosen, most frequent first but for lengths, the greatest first, and what is."""

    cards: list[str]
    dims: list[int]
    lengths: list[int]
    card: str
    dim: int
    tokens: int
    direction: str


def choices(view: PerformanceView, files: tuple[TimingFile, ...]) -> Choices:
    """The visitor's choices where the results have them, else what they have most of; of lengths alike the greatest.

    >>> choices(PerformanceView(), ()).card
    'NVIDIA H100 80GB HBM3'
    """
    rows = [row for file in files for row in file.rows]
    cards = _frequent([row.card for row in rows], [MODEL_CARD])
    card = view.card if view.card in cards else cards[0]
    dims = _frequent([row.dim for row in rows if row.card == card], [*DIMS])
    dim = view.dim if view.dim in dims else dims[0]
    times = Counter(row.tokens for row in rows if (row.card, row.dim) == (card, dim))
    lengths = sorted(times, reverse=True)
    most = max(lengths, key=times.__getitem__, default=ALL)
    tokens = view.tokens if view.tokens in (*lengths, ALL) else most
    return Choices(cards, dims, lengths, card, dim, tokens, view.direction)


def _frequent(found: list[Any], always: list[Any]) -> list[Any]:
    ordered = [value for value, _ in Counter(found).most_common()]
    return [*ordered, *(value for value in always if value not in ordered)]


def render() -> None:
    """Draw the choices, the plot with this pattern's times beside it, and the table."""
    state = session.state()
    text_bar.render(state, export=False)
    own, notes = installed()
    files = (*own, *state.performance.given.files)
    chosen = choices(state.performance, files)
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small", key="performance-form"):
        _form(chosen)
        results_menu.render(state.performance.given, own)
    for note in (*notes, *filter(None, [state.performance.given.problem])):
        st.html(f'<div class="ps-wrong" role="alert">{escape(note[:400])}</div>')
    times = measured(files, chosen.direction)
    cells = [one for one in times if (one.row.card, one.row.dim) == (chosen.card, chosen.dim)]
    cells = [one for one in cells if chosen.tokens in (ALL, one.row.tokens)]
    left, right = st.columns([60, 40], gap="medium")
    with right, st.container(gap="xsmall"):
        stars = _pattern(state, chosen, files, times)
    with left:
        _plot(cells, stars, chosen)
    if cells:
        timing_table.render(cells)


def _form(chosen: Choices) -> None:
    _select("card", "Card", chosen.cards, chosen.card, str, 250)
    _select("dim", "Head dim", chosen.dims, chosen.dim, str, 110)
    lengths = [*chosen.lengths, ALL]
    _select(
        "tokens", "Length", lengths, chosen.tokens, lambda n: "all lengths" if n == ALL else f"{label(n)} tokens", 150
    )
    key = follow("performance direction", chosen.direction)
    st.segmented_control(
        "Pass",
        list(DIRECTIONS),
        default=chosen.direction,
        key=key,
        format_func=DIRECTIONS.__getitem__,
        on_change=on(key, lambda value: PerformanceSet("direction", value)),
        required=True,
    )


def _select(field: str, name: str, options: list[Any], value: Any, said: Any, width: int) -> None:
    key = follow(f"performance {field}", value)
    st.selectbox(
        name,
        options,
        options.index(value),
        key=key,
        format_func=said,
        on_change=on(key, lambda choice: PerformanceSet(field, choice)),
        width=width,
    )


def _plot(cells: list[Measured], stars: list[speedup_plot.Star], chosen: Choices) -> None:
    if not cells:
        st.html(
            f'<div class="ps-note">Nothing was measured at D {chosen.dim} on {escape(chosen.card)}. '
            "Run <code>python -m benchmarks.run</code> there and give its file under Results.</div>"
        )
        return
    speedup_plot.render(cells, stars)
    st.html(
        '<div class="ps-note">Measured times of one run beside the fastest dense attention over all pairs in that run, '
        "as that run took them: benchmarks.run says whether with the host. "
        "On the dashed line time would follow density alone.</div>"
    )


def _pattern(
    state: State, chosen: Choices, files: tuple[TimingFile, ...], times: list[Measured]
) -> list[speedup_plot.Star]:
    """Draw the times of the pattern that is shown; returns what of them belongs into the plot."""
    try:
        layout, stats = compute.design(state)
    except StudioError as error:
        st.html(f'<div class="ps-wrong" role="alert">{escape(str(error)[:400])}</div>')
        return []
    heads = layout.problem.heads
    kv_heads = state.kv_heads if state.kv_heads and heads % state.kv_heads == 0 else heads
    subject = Subject(state.pattern, layout, chosen.dim, kv_heads, chosen.card)
    told = predicted(subject, chosen.direction, [row for file in files for row in file.rows])
    alike = [one for one in times if subject.fits(one.row)]
    found = sorted((one for one in alike if subject.is_cell(one.row)), key=lambda one: one.ms)
    dense = min((one for one in alike if one.is_dense), key=lambda one: one.ms, default=None)
    time_panel.render(subject, chosen.direction, told, found, dense)
    density = stats.density.block
    if dense is None or not density or chosen.tokens not in (ALL, layout.problem.kv_len):
        return []
    stars = [("predicted", density, dense.ms / told.ms, told.error)] if told else []
    return [*stars, *(("measured", density, dense.ms / one.ms, 0.0) for one in found[:1] if not one.is_dense)]
