"""The frame around all pages: title, navigation and style. A page is one entry of PAGES."""

from __future__ import annotations

from pathlib import Path

import streamlit as st

from pattern_studio.plot.colours import DARK

from . import session
from .components import theme_watch
from .pages import compare, design, export, fit, gallery, performance, quality, reach
from .theme import colours, css

STATIC = Path(__file__).parent / "static"

PAGES = (
    # (render, title, path in the address, what it is for)
    (design.render, "Design", "design", "Write a pattern, see it, and read what it keeps and costs."),
    (
        quality.render,
        "Quality",
        "quality",
        "What each head of a real model keeps under the pattern, and which rows lose.",
    ),
    (compare.render, "Compare", "compare", "Two or more patterns side by side: what they share, keep and cost."),
    (reach.render, "Reach", "reach", "How information spreads over layers: what reaches what, and after how many."),
    (fit.render, "Fit", "fit", "Make a pattern from a model's own attention at a budget, and see what it is worth."),
    (
        performance.render,
        "Performance",
        "performance",
        "What was measured on which card, and how long this pattern would take there.",
    ),
    (export.render, "Export", "export", "Take the pattern to another library, exactly, as code or a file."),
    (gallery.render, "Gallery", "gallery", "Patterns of the literature, each one click from the Design page."),
)


def main() -> None:
    """Draw the page that the address names."""
    st.set_page_config(page_title="Pattern Studio", page_icon=str(STATIC / "icon.png"), layout="wide")
    st.logo(str(STATIC / ("logo-dark.svg" if colours() == DARK else "logo.svg")), size="large")
    pages = [
        st.Page(render, title=title, url_path=path, default=not n, help=about)
        for n, (render, title, path, about) in enumerate(PAGES)
    ]
    chosen = st.navigation(pages, position="top")
    session.leave({page.title: page for page in pages})
    st.html(css())
    session.sync_address(session.state().shown)
    if chosen is not pages[0]:  # Design's map watches, and Design itself where there is none
        theme_watch.render()  # first: a page that waits for what it measures is watched, too
    chosen.run()
