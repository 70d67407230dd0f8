"""Which library holds which preset: the packaged result of the gallery's matrix, as a table that can be filtered."""

from __future__ import annotations

from collections.abc import Callable
from html import escape
from typing import Any

import streamlit as st

from .. import exporting
from ..events import Chosen
from ..session import follow, on
from ..state import State

LEAST = {"anything": None, "exact": 0.0, "at most 10 % more pairs": 10.0, "at most 100 % more pairs": 100.0}
STYLE = """<style>
.ps-matrix { width: 100%; border-collapse: collapse; font-size: 12px; line-height: 16px; }
.ps-matrix th { font-weight: 400; text-align: left; padding: 2px 4px; white-space: nowrap; }
.ps-matrix thead th { vertical-align: bottom; white-space: normal; overflow-wrap: anywhere; line-height: 14px;
  position: sticky; top: 0; background: var(--ps-background); }
.ps-matrix td { padding: 2px 4px; border: 1px solid var(--ps-line); white-space: nowrap; }
.ps-matrix .exact { background: color-mix(in srgb, var(--ps-full) 30%, transparent); font-weight: 600; }
.ps-matrix .cover { background: color-mix(in srgb, var(--ps-partial) 15%, transparent); }
.ps-matrix .unsupported { opacity: 0.6; }
.st-key-matrix-table { overflow-x: auto; }
</style>"""


def render(state: State) -> None:
    """Draw the filters and the table."""
    known = exporting.matrix()
    names = list(next(iter(known["presets"].values()))["cells"])
    first, second, third = st.columns([26, 44, 30], gap="small")
    typed, chosen, least = (
        state.choice(name, default) for name, default in (("preset", ""), ("targets", []), ("least", "anything"))
    )
    key = follow("preset", typed)
    first.text_input("Preset", typed, key=key, on_change=_chooses(key), placeholder="a part of its name")
    key = follow("targets", chosen)
    second.multiselect("Targets", names, chosen, key=key, on_change=_chooses(key), placeholder="all")
    key = follow("least", least)
    third.selectbox("All of them hold it", list(LEAST), list(LEAST).index(least), key=key, on_change=_chooses(key))
    rows = filtered(known["presets"], typed, chosen or names, LEAST[least])
    if not rows:
        st.html('<div class="ps-note" role="status">No preset is like that: ask for less.</div>')
        return
    with st.container(key="matrix-table"):
        st.html(STYLE + _table(rows))
    blocks = ", ".join(map(str, known["blocks"][:-1]))
    st.html(
        f'<div class="ps-note" role="status">{len(rows)} of {len(known["presets"])} presets on {known["tokens"]:,} '
        f"tokens and {known['heads']} heads, the best of blocks {blocks} and {known['blocks'][-1]}. <b>exact</b>: the "
        "very same pairs. +16 %: all of them and so many more, written only when asked for. no: refused; the reason is "
        "in the cell's title. json, npz and safetensors hold everything exactly.</div>"
    )


def _chooses(key: str) -> Callable[[], None]:
    return on(key, lambda value: Chosen(key.rsplit(" ", 1)[0], value))


def filtered(presets: dict[str, Any], typed: str, targets: list[str], most: float | None) -> dict[str, dict[str, Any]]:
    """The presets whose name has `typed` in it and that all the targets hold with at most `most` per cent more pairs.

    `most` None asks nothing of the targets. Gives for each preset its text and the cells of these targets.

    >>> presets = {"a": {"text": "a()", "cells": {"x": {"kind": "exact"}, "y": {"kind": "cover", "added": 20.0}}}}
    >>> list(filtered(presets, "", ["x", "y"], 10.0)), list(filtered(presets, "A", ["x"], 0.0))
    ([], ['a'])
    """
    out = {}
    for name, preset in presets.items():
        cells = {to: preset["cells"][to] for to in targets}
        held = most is None or all(
            cell["kind"] in ("exact", "cover") and cell.get("added", 0.0) <= most for cell in cells.values()
        )
        if held and typed.strip().lower() in name:
            out[name] = {"text": preset["text"], "cells": cells}
    return out


def _table(rows: dict[str, dict[str, Any]]) -> str:
    head = "".join(
        f'<th scope="col">{escape(name).replace("_", "_<wbr>")}</th>' for name in next(iter(rows.values()))["cells"]
    )
    body = "".join(
        f'<tr><th scope="row" title="{escape(row["text"])}">{escape(name)}</th>'
        f"{''.join(map(_cell, row['cells'].values()))}</tr>"
        for name, row in rows.items()
    )
    return f'<table class="ps-matrix"><thead><tr><td></td>{head}</tr></thead><tbody>{body}</tbody></table>'


def _cell(cell: dict[str, Any]) -> str:
    kind = cell["kind"]
    words = {"exact": "exact", "cover": f"+{cell.get('added', 0):,g} %", "lossy": f"-{cell.get('dropped', 0):,g} %"}
    title = cell.get("reason", f"{kind}, at block {cell['block']}")
    return f'<td class="{kind}" title="{escape(title)}">{words.get(kind, "no")}</td>'
