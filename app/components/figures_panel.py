"""The figures of a design: densities, tiles and cost at once; quality as soon as it is measured."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape
from itertools import chain
from typing import TYPE_CHECKING, Any

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from pattern_studio.metrics import layout_balance
from pattern_studio.metrics.predicts import described, first_figure

from .. import compute, numbers

if TYPE_CHECKING:  # it needs torch, which no page waits for
    from pattern_studio.metrics.report import Figures

COLUMNS = 3
Figure = tuple[str, str, str]  # label, value, help


def render(laid: compute.Laid | None) -> None:
    """Draw what follows from the layout alone; without one, each figure says that it is waited for."""
    group("Density, over all heads", first=True)
    _row(
        (
            "Token, causal",
            _told(laid, lambda it: numbers.percent(it[1].density.token_of_causal)),
            "Token density of the causal triangle: allowed pairs with key <= query / all such pairs. Dense causal "
            f"attention has 100 %. {_told(laid, lambda it: numbers.count(it[1].pairs))} pairs are allowed.",
        ),
        (
            "Token, all",
            _told(laid, lambda it: numbers.percent(it[1].density.token)),
            "Token density of everything: allowed pairs / (query rows x keys). Dense causal attention has about 50 %.",
        ),
        (
            "Block",
            _told(laid, lambda it: numbers.percent(it[1].density.block)),
            "Block density: active tiles / tiles, the share of the map that a block kernel has to compute. "
            f"{_told(laid, lambda it: numbers.count(it[1].tiles.active))} of "
            f"{_told(laid, lambda it: numbers.count(it[1].tiles.total))} tiles are active.",
        ),
    )
    group("Tiles")
    balance = layout_balance(laid[0]) if laid else None
    _row(
        (
            "Full",
            _told(laid, lambda it: numbers.count(it[1].tiles.full)),
            "Tiles in which every pair is allowed: no mask is needed there. Summed over heads.",
        ),
        (
            "Partial",
            _told(laid, lambda it: numbers.count(it[1].tiles.partial)),
            "Active tiles with pairs that are masked out. Summed over heads; fewer is better.",
        ),
        (
            "Efficiency",
            _told(laid, lambda it: numbers.percent(it[1].block_efficiency)),
            "Block efficiency: allowed pairs / pairs inside active tiles. 100 % wastes nothing; smaller blocks, or "
            "fewer keys a block, raise it.",
        ),
        (
            "Balance",
            _told(balance, lambda by: numbers.fraction(by[0])),
            "Most active tiles of a query block / their mean, over all heads: how much longer the forward pass's "
            "longest line of work is than an even share. 1 is best. By key blocks, as the backward pass goes: "
            f"{_told(balance, lambda by: numbers.fraction(by[1]))}.",
        ),
        columns=4,
    )
    group("Cost")
    flops = compute.forward_flops(laid[0]) if laid else 0
    _row(
        (
            "Forward pass",
            _told(laid, lambda _: numbers.scaled(flops, "FLOP")),
            f"4 x {compute.HEAD_DIM} channels x pairs in active tiles, over all heads: two matrix products of 2 FLOP a "
            "pair and channel.",
        ),
        (
            "Of dense",
            _told(laid, lambda it: numbers.percent(flops / compute.dense_flops(it[0].problem))),
            "This forward pass / one over all pairs. A dense causal kernel needs about 50 %. "
            "It is a count, not a measured time.",
        ),
        (
            "Empty rows",
            _told(laid, lambda it: numbers.count(it[1].empty_rows)),
            "Query rows without an allowed key, summed over heads. Their output is 0. None is best.",
        ),
    )


def quality(
    report: Figures | None, columns: int = COLUMNS, drawn: Sequence[DeltaGenerator] = ()
) -> list[DeltaGenerator]:
    """Draw what the pattern keeps of a real model's attention, in rows of `columns` figures; return their places.

    Given such places it draws there, so that nothing jumps; without a report each figure says that it is waited for.
    """
    rows = ((*_costs(report), *_possible(report)), _kept(report))
    if columns <= COLUMNS:
        rows = (_costs(report), _kept(report), _possible(report))
    if not drawn:
        return [place for row in rows for place in _row(*row, columns=columns)]
    for place, (label, value, text) in zip(drawn, chain(*rows), strict=True):
        place.metric(label, value, help=text)
    return list(drawn)


def _costs(report: Figures | None) -> tuple[Figure, ...]:
    name = first_figure(report.figures if report is not None else ()) or "damage"
    return (
        (
            "Damage",
            _told(report, lambda r: numbers.fraction(r.figures[name])),
            described(name),
        ),
        (
            "Output error",
            _told(report, lambda r: numbers.fraction(r.output_error.rel_l2)),
            "|o - o_pattern| / |o| in the L2 norm, against dense attention's output. 0 is best.",
        ),
    )


def _kept(report: Figures | None) -> tuple[Figure, ...]:
    return (
        (
            "Recall, mean",
            _told(report, lambda r: numbers.percent(r.recall.mean)),
            "Mass recall: softmax probability of dense attention that the pattern keeps, mean over all rows, heads and "
            "layers: exp(LSE of the pattern - LSE of dense). 100 % loses nothing.",
        ),
        (
            "Recall, p1",
            _told(report, lambda r: numbers.percent(r.recall.p1)),
            "The 1st percentile over rows: one row in a hundred keeps less than this. A high mean can hide it.",
        ),
        (
            "Recall, min",
            _told(report, lambda r: numbers.percent(r.recall.min)),
            "The row that loses most. The Quality page names it.",
        ),
    )


def _possible(report: Figures | None) -> tuple[Figure, ...]:
    return (
        (
            "Oracle recall",
            _told(report, lambda r: numbers.percent(r.oracle_recall)),
            "Mean recall of the best tiles, chosen with the answer known, for the same number of active tiles. "
            "No pattern with this block budget keeps more.",
        ),
        (
            "Regret",
            _told(report, lambda r: numbers.percent(r.regret)),
            "Oracle recall - recall: what a better choice of equally many tiles could still gain. 0 is best.",
        ),
    )


def _told(known: Any, value: Callable[[Any], str]) -> str:
    return "…" if known is None else value(known)  # compute.QUALITY asks for recall, its oracle and output error


def group(title: str, note: str = "", first: bool = False) -> None:
    """A heading inside the panel."""
    tail = f' <span style="text-transform:none;letter-spacing:0;font-weight:400">{escape(note)}</span>' if note else ""
    st.html(f'<div class="ps-group{" first" if first else ""}">{escape(title)}{tail}</div>')


def _row(*figures: Figure, columns: int = COLUMNS) -> list[DeltaGenerator]:
    # A row of fewer figures leaves columns empty, so that rows line up.
    return [
        column.metric(label, value, help=text)
        for column, (label, value, text) in zip(st.columns(columns, gap="small"), figures, strict=False)
    ]
