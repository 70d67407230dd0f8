"""How long the pattern that is shown takes: predicted, and measured where it was, each under its own name."""

from __future__ import annotations

from html import escape

import streamlit as st

from .. import numbers
from ..prediction import Prediction, Subject
from ..timings import BOTH, Measured
from .figures_panel import group
from .speedup_plot import name_of

MOST = 4  # measured arms that are shown


def milliseconds(ms: float) -> str:
    """A time with its unit.

    >>> milliseconds(0.40665), milliseconds(12_345.6)
    ('0.407 ms', '12.3 s')
    """
    return f"{numbers.fraction(ms)} ms" if ms < 1000 else f"{numbers.fraction(ms / 1000)} s"


def render(
    subject: Subject, direction: str, told: Prediction | None, found: list[Measured], dense: Measured | None
) -> None:
    """Draw the prediction, then what was measured of the same pattern and tensors; neither stands for the other.

    `dense`: the fastest dense attention that was measured with these tensors.
    """
    problem = subject.layout.problem
    tiles = subject.layout.tiles() / max(subject.layout.q_blocks * subject.layout.kv_blocks * problem.heads, 1)
    which = "forward and backward" if direction == BOTH else direction
    group("This pattern", f"{which}, block density {numbers.percent(tiles)}", first=True)
    if told is None:
        st.html(
            f'<div class="ps-note">Not predicted: too few cells of our kernels are known on {escape(subject.card)}. '
            "Run <code>python -m benchmarks.run</code> there and give its file under Results.</div>"
        )
    else:
        _predicted(told, dense)
    _measured(found)
    st.html(f'<div class="ps-note">{escape(_tensors(subject))}</div>')
    for note in _notes(subject, told, dense):
        st.html(f'<div class="ps-note">{escape(note)}</div>')


def _predicted(told: Prediction, dense: Measured | None) -> None:
    left, right = st.columns(2, gap="small")
    left.metric(
        "Predicted time",
        milliseconds(told.ms),
        help=f"An estimate, not a measurement: the time of a call + FLOPs in active tiles / speed, by {told.basis}.",
    )
    if dense is not None:
        right.metric(
            "Predicted speed-up",
            f"{numbers.fraction(dense.ms / told.ms)}x",
            help=f"Measured time of {name_of(dense.row.arm)} on the same tensors, {milliseconds(dense.ms)} / the "
            "predicted time.",
        )
    else:
        right.metric("Predicted speed-up", numbers.NONE, help="Dense attention was not measured on these tensors.")
    st.html(
        f'<div class="ps-note">Predicted by {escape(told.basis)}; wrong by {numbers.percent(told.error)} in the median '
        "of cells that it was not fitted to.</div>"
    )


def _measured(found: list[Measured]) -> None:
    if not found:
        st.html('<div class="ps-note">Measured time: none, this pattern was not timed with these tensors.</div>')
        return
    for column, one in zip(st.columns(2, gap="small") * MOST, found[:MOST], strict=False):
        column.metric(
            f"Measured: {name_of(one.row.arm)}",
            milliseconds(one.ms),
            help=f"The median of a benchmark on {one.row.card}, {one.row.software}, {one.row.date}.",
        )


def _tensors(subject: Subject) -> str:
    problem = subject.layout.problem
    kv = "" if subject.kv_heads == problem.heads else f" on {subject.kv_heads} KV heads"
    block_q, block_k = subject.layout.block
    return (
        f"One sequence of {problem.q_len:,} queries and {problem.kv_len:,} keys, {problem.heads} heads{kv}, D "
        f"{subject.dim}, block {block_q} x {block_k}, on {subject.card}."
    )


def _notes(subject: Subject, told: Prediction | None, dense: Measured | None) -> list[str]:
    notes = []
    if told is not None and not told.alike:
        notes.append("Head dim or block differ from those of the cells: it is assumed that FLOPs cost the same here.")
    if told is not None and told.beyond:
        notes.append("This is less or more work than any cell that was measured on the card: an extrapolation.")
    if dense is None:
        notes.append("Dense attention was not measured with these tensors, so there is no speed-up.")
    return notes
