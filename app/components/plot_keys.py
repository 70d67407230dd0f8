"""The buttons that Plotly draws, by keyboard."""

from __future__ import annotations

from pathlib import Path

from streamlit.components import v2

_keys = v2.component(
    "studio_plot_keys",
    html="<span></span>",
    js=(Path(__file__).parents[1] / "static" / "plot_keys.js").read_text(encoding="utf-8"),
)


def render() -> None:
    """Bring all such buttons of the page under the Tab key; nothing is drawn. Call it last on a page."""
    _keys(key="plot keys", height=1)
