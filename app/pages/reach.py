"""Reach: how information spreads over layers, which keys reach which queries, and after how many."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape

import streamlit as st

from pattern_studio import StudioError

from .. import session
from ..components import hops_map, plot_keys, query_field, reach_growth, text_bar
from ..components.waiting import when_done
from ..events import ReachSet
from ..reach import MAX_BLOCKS, MAX_LAYERS, Spread, assigned_layers, least_block
from ..session import follow, on
from ..spreads import spread_job
from ..state import State

LAYERS = 8  # where the text does not say


@dataclass(frozen=True)
class Choices:
    """What the page looks at, with every choice made and within its range."""

    layers: int
    depth: int
    block: int
    query: int


def choices(state: State) -> Choices:
    """The visitor's choices, or what the text and the problem suggest.

    >>> choices(State())
    Choices(layers=8, depth=8, block=64, query=1023)
    """
    view, tokens = state.reach, state.shown.q_len
    layers = view.layers or min(assigned_layers(state.pattern) or LAYERS, MAX_LAYERS)
    block = view.block or min(max(state.shown.block_q, least_block(tokens)), tokens)
    query = tokens - 1 if view.query is None else min(view.query, tokens - 1)
    return Choices(layers, min(view.depth or layers, layers), block, query)


def render() -> None:
    """Draw the page; the layers are composed beside it."""
    state = session.state()
    text_bar.render(state, export=False)
    chosen = choices(state)
    _form(state, chosen)
    try:
        job = spread_job(session.visitor(), state, chosen.layers, chosen.block)
    except StudioError as error:
        _wrong(str(error))
        return
    when_done([job], lambda found: _page(state, chosen, found), "Composing the layers …")


def _form(state: State, chosen: Choices) -> None:
    tokens = state.shown.q_len
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small", key="reach-form"):
        _number("layers", "Layers", chosen.layers, 1, MAX_LAYERS, _about_layers(state), 130)
        _block(state, chosen)
        _number("query", "Query row", chosen.query, 0, tokens - 1, "Whose receptive field is drawn.", 130)
        if chosen.layers > 1:
            key = follow("reach depth", chosen.depth)
            st.slider(
                "After layers",
                1,
                chosen.layers,
                chosen.depth,
                key=key,
                on_change=on(key, lambda value: ReachSet("depth", value)),
                help="The depth that is shown; arrow keys step through the layers. Play, above the map, runs up to it.",
                width=300,
            )


def _about_layers(state: State) -> str:
    assigned = assigned_layers(state.pattern)
    if assigned is None:
        return "How many layers are stacked, all with this pattern."
    return f"How many layers are stacked; the text assigns patterns to layers 0 to {assigned - 1}."


def _number(field: str, label: str, value: int, low: int, high: int, text: str, width: int) -> None:
    key = follow(f"reach {field}", value)
    st.number_input(
        label,
        low,
        high,
        value,
        step=1,
        key=key,
        on_change=on(key, lambda number: ReachSet(field, number)),
        help=text,
        width=width,
    )


def _block(state: State, chosen: Choices) -> None:
    tokens, least = state.shown.q_len, least_block(state.shown.q_len)
    usual = {2**n for n in range(11) if least <= 2**n <= tokens}
    options = sorted({*usual, chosen.block})
    key = follow("reach block", chosen.block)
    st.selectbox(
        "Resolution",
        options,
        options.index(chosen.block),
        key=key,
        format_func=lambda block: "single tokens" if block == 1 else f"blocks of {block}",
        on_change=on(key, lambda block: ReachSet("block", block)),
        help=f"Single tokens are exact, up to {MAX_BLOCKS:,} of them. Blocks stand for all of their pairs.",
        width=160,
    )


def _page(state: State, chosen: Choices, found: Spread | str) -> None:
    if isinstance(found, str):
        _wrong(found)
        return
    left, right = st.columns([50, 50], gap="medium")
    with left:
        hops_map.render(found, chosen.depth)
    with right, st.container(gap="xsmall"):
        reach_growth.figures(found, chosen.depth)
        reach_growth.render(found, chosen.depth, chosen.query)
        query_field.render(found, chosen.query)
    st.html(f'<div class="ps-note">{escape(_about(state, found))}</div>')
    with st.expander("Figures by layer"):
        reach_growth.table(found)
    plot_keys.render()


def _wrong(words: str) -> None:
    st.html(f'<div class="ps-wrong" role="alert">{escape(words[:400])}</div>')


def _about(state: State, found: Spread) -> str:
    """What is composed, and how far to trust it."""
    each = "the text's pattern for it" if assigned_layers(state.pattern) else "the pattern"
    about = (
        f"Each of the {found.layers} layers reads what {each} allows in any head, and a residual path keeps what a "
        "token has."
    )
    if found.figures.exact:
        return f"{about} Exact for every pair of tokens."
    return f"{about} At most this much: a block of {found.block} tokens with one allowed pair counts as whole. " + (
        "Choose single tokens for the exact relation." if least_block(found.tokens) == 1 else "Smaller is closer."
    )
