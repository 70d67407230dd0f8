"""The figures of a design: densities, tiles and cost at once; quality as soon as it is measured."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

import streamlit as st

from pattern_studio import BlockLayout
from pattern_studio.metrics import LayoutStats
from pattern_studio.metrics.predicts import described

from .. import compute, numbers

if TYPE_CHECKING:  # it needs torch, which no page waits for
    from pattern_studio.metrics.report import Figures

COLUMNS = 3


def render(layout: BlockLayout, stats: LayoutStats) -> None:
    """Draw what follows from the layout alone."""
    group("Density, over all heads", first=True)
    _row(
        (
            "Token, causal",
            numbers.percent(stats.density.token_of_causal),
            "Token density of the causal triangle: allowed pairs with key <= query / all such pairs. Dense causal "
            f"attention has 100 %. {numbers.count(stats.pairs)} pairs are allowed.",
        ),
        (
            "Token, all",
            numbers.percent(stats.density.token),
            "Token density of everything: allowed pairs / (query rows x keys). Dense causal attention has about 50 %.",
        ),
        (
            "Block",
            numbers.percent(stats.density.block),
            "Block density: active tiles / tiles, the share of the map that a block kernel has to compute. "
            f"{numbers.count(stats.tiles.active)} of {numbers.count(stats.tiles.total)} tiles are active.",
        ),
    )
    group("Tiles")
    _row(
        (
            "Full",
            numbers.count(stats.tiles.full),
            "Tiles in which every pair is allowed: no mask is needed there. Summed over heads.",
        ),
        (
            "Partial",
            numbers.count(stats.tiles.partial),
            "Active tiles with pairs that are masked out. Summed over heads; fewer is better.",
        ),
        (
            "Efficiency",
            numbers.percent(stats.block_efficiency),
            "Block efficiency: allowed pairs / pairs inside active tiles. 100 % wastes nothing; smaller blocks, or "
            "fewer keys a block, raise it.",
        ),
    )
    group("Cost")
    flops = compute.forward_flops(layout)
    _row(
        (
            "Forward pass",
            numbers.scaled(flops, "FLOP"),
            f"4 x {compute.HEAD_DIM} channels x pairs in active tiles, over all heads: two matrix products of 2 FLOP a "
            "pair and channel.",
        ),
        (
            "Of dense",
            numbers.percent(flops / compute.dense_flops(layout.problem)),
            "This forward pass / one over all pairs. A dense causal kernel needs about 50 %. "
            "It is a count, not a measured time.",
        ),
        (
            "Empty rows",
            numbers.count(stats.empty_rows),
            "Query rows without an allowed key, summed over heads. Their output is 0. None is best.",
        ),
    )


def quality(report: Figures, columns: int = COLUMNS) -> None:
    """Draw what the pattern keeps of a real model's attention, in rows of `columns` figures."""
    recall, error = report.recall, report.output_error
    assert recall is not None  # compute.QUALITY asks for these
    assert error is not None
    weighted = "weighted_damage" in report.figures
    costs = (
        (
            "Damage",
            numbers.fraction(report.weighted_damage if weighted else report.damage),
            described("weighted_damage" if weighted else "damage"),
        ),
        (
            "Output error",
            numbers.fraction(error.rel_l2),
            "|o - o_pattern| / |o| in the L2 norm, against dense attention's output. 0 is best.",
        ),
    )
    kept = (
        (
            "Recall, mean",
            numbers.percent(recall.mean),
            "Mass recall: softmax probability of dense attention that the pattern keeps, mean over all rows, heads and "
            "layers: exp(LSE of the pattern - LSE of dense). 100 % loses nothing.",
        ),
        (
            "Recall, p1",
            numbers.percent(recall.p1),
            "The 1st percentile over rows: one row in a hundred keeps less than this. A high mean can hide it.",
        ),
        (
            "Recall, min",
            numbers.percent(recall.min),
            "The row that loses most. The Quality page names it.",
        ),
    )
    possible = (
        (
            "Oracle recall",
            numbers.percent(report.oracle_recall),
            "Mean recall of the best tiles, chosen with the answer known, for the same number of active tiles. "
            "No pattern with this block budget keeps more.",
        ),
        (
            "Regret",
            numbers.percent(report.regret),
            "Oracle recall - recall: what a better choice of equally many tiles could still gain. 0 is best.",
        ),
    )
    for row in ((*costs, *possible), kept) if columns > COLUMNS else (costs, kept, possible):
        _row(*row, columns=columns)


def group(title: str, note: str = "", first: bool = False) -> None:
    """A heading inside the panel."""
    tail = f' <span style="text-transform:none;letter-spacing:0;font-weight:400">{escape(note)}</span>' if note else ""
    st.html(f'<div class="ps-group{" first" if first else ""}">{escape(title)}{tail}</div>')


def _row(*figures: tuple[str, str, str], columns: int = COLUMNS) -> None:
    # A row of fewer figures leaves columns empty, so that rows line up.
    for column, (label, value, text) in zip(st.columns(columns, gap="small"), figures, strict=False):
        column.metric(label, value, help=text)
