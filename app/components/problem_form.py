"""The problem that the pattern is lowered for: lengths, block, heads, and documents or a layer where they matter."""

from __future__ import annotations

import streamlit as st

from ..events import ProblemSet
from ..session import follow, on
from ..state import State
from ..words import names
from ..work import MAX_HEADS, MAX_LENGTH

BLOCKS_Q = (16, 32, 64, 128, 256)
BLOCKS_K = (1, 8, 16, 32, 64, 128, 256)


def render(state: State) -> None:
    """Draw the form, one field below the other."""
    work = state.work
    _number("q_len", "Query rows, tokens", work.q_len, MAX_LENGTH, "q_len: how many queries are computed.")
    _number(
        "kv_len",
        "Keys, tokens",
        work.q_len if work.kv_len is None else work.kv_len,
        MAX_LENGTH,
        "kv_len: how many keys there are. With more keys than queries the queries are the last ones, as in decoding.",
    )
    _choice("block_q", "Block, query rows", work.block_q, BLOCKS_Q, "Query rows of a tile.")
    _choice("block_k", "Block, keys", work.block_k, BLOCKS_K, "Keys of a tile; 1 to 32 are fine key runs.")
    _number("heads", "Query heads", work.heads, MAX_HEADS, "Counts and costs are summed over heads.")
    words = names(state.pattern)
    if "docs" in words or "Within" in words or work.docs:
        key = follow("problem docs", work.docs)
        st.text_input(
            "Documents, tokens",
            work.docs,
            key=key,
            on_change=on(key, lambda text: ProblemSet("docs", text)),
            placeholder="512, 512",
            help="Lengths of the documents packed one after another; they add up to the keys.",
        )
    if "layers" in words:
        _number("layer", "Layer", work.layer, 65535, "Which layer's pattern is shown.", low=0)


def _number(field: str, label: str, value: int, high: int, text: str, low: int = 1) -> None:
    key = follow(f"problem {field}", value)
    st.number_input(
        label,
        low,
        high,
        value,
        step=1,
        key=key,
        on_change=on(key, lambda number: ProblemSet(field, number)),
        help=text,
    )


def _choice(field: str, label: str, value: int, usual: tuple[int, ...], text: str) -> None:
    key, options = follow(f"problem {field}", value), sorted({*usual, value})
    st.selectbox(
        label,
        options,
        options.index(value),
        key=key,
        on_change=on(key, lambda number: ProblemSet(field, number)),
        help=text,
    )
