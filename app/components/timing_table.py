"""The measured cells as a table that can be sorted and searched."""

from __future__ import annotations

import streamlit as st

from ..timings import Measured
from .speedup_plot import name_of

HEIGHT = 250


def render(cells: list[Measured]) -> None:
    """Draw the cells, densest first; every row is a measurement."""
    rows = sorted(cells, key=lambda one: (-one.row.tokens, -one.row.density, one.row.pattern, one.ms))
    st.dataframe(
        {
            "arm": [name_of(one.row.arm) for one in rows],
            "pattern": [one.row.pattern for one in rows],
            "tokens": [one.row.tokens for one in rows],
            "heads": [
                f"{one.row.heads}" if one.row.kv_heads == one.row.heads else f"{one.row.heads} on {one.row.kv_heads}"
                for one in rows
            ],
            "block": [f"{one.row.block[0]} x {one.row.block[1]}" for one in rows],
            "density": [100 * one.row.density for one in rows],
            "ms": [one.ms for one in rows],
            "speed-up": [one.speed_up for one in rows],
            "TFLOP/s": [one.tflops for one in rows],
            "date": [one.row.date for one in rows],
            "software": [one.row.software for one in rows],
        },
        hide_index=True,
        height=HEIGHT,
        width="stretch",
        key="timings",
        column_config={
            "tokens": st.column_config.NumberColumn(format="localized"),
            "density": st.column_config.NumberColumn("block density, %", format="%.3g"),
            "ms": st.column_config.NumberColumn("ms, measured", format="%.3f"),
            "speed-up": st.column_config.NumberColumn(
                format="%.3g", help="Dense attention's time in the same run / this time. Empty where dense was not run."
            ),
            "TFLOP/s": st.column_config.NumberColumn(format="%.0f", help="Of the pairs in active tiles."),
        },
    )
