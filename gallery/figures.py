"""What the gallery says of a named pattern: counts where it is drawn, and what it keeps of the bundled capture."""

from __future__ import annotations

from typing import Any

import numpy as np

import pattern_studio as ps
from pattern_studio.capture import Capture
from pattern_studio.metrics import analyze, layout_stats

from .costs import measured, predicted, timed_rows
from .named import Named

BLOCK = 64  # tokens of a tile on the capture: sixteen a side
HEAD_DIM = 64  # the capture's, for the cost
DIGITS = 4  # of measured figures, beyond which machines differ


def figures(named: Named, capture: Capture) -> dict[str, Any]:
    """All figures of one pattern, as values that JSON can hold.

    `drawn`: pairs, densities, tiles and the share of allowed pairs by distance, of all heads, where it is drawn.
    `kept`: on the capture, or None where `why_not` says why it can't be measured there.
    `predicted`: of one pass at a length of use, or None; `measured`: the benchmarks' rows of this very pattern.
    """
    why_not = unfit(named, capture)
    return {
        "text": named.text,
        "drawn": drawn(named),
        "kept": None if why_not else kept(named, capture),
        "why_not": why_not,
        "predicted": predicted(named),
        "measured": measured(named, timed_rows()),
    }


def drawn(named: Named) -> dict[str, Any]:
    """Counts of the pattern on its own problem: exact, of all heads (and of the drawn layer)."""
    stats = layout_stats(named.pattern, named.problem, named.block, named.layer)
    return {
        "pairs": stats.pairs,
        "token_density": stats.density.token,
        "token_density_of_causal": stats.density.token_of_causal,
        "block_density": stats.density.block,
        "tiles": vars(stats.tiles) | {},
        "block_efficiency": stats.block_efficiency,
        "empty_rows": stats.empty_rows,
        "by_distance": by_distance(named),
    }


def by_distance(named: Named) -> list[dict[str, Any]]:
    """Allowed pairs by how far the key lies behind (`past`) or ahead (`ahead`), of the drawn head.

    In bands 0, 1-3, 4-15, 16-63, ... tokens: the share of the pairs at these distances that is allowed, None where
    there are none.
    """
    mask = ps.dense_mask(named.pattern, named.problem, block=named.block, layer=named.layer)[named.head]
    tokens = len(mask)
    distance = np.arange(tokens)[:, None] - np.arange(tokens)
    starts = [0, *(4**n for n in range(16) if 4**n < tokens)]
    out = []
    for first, stop in zip(starts, [*starts[1:], tokens], strict=True):
        sides = {"past": distance, "ahead": -distance} if first else {"past": distance}
        inside = {side: (far >= first) & (far < stop) for side, far in sides.items()}
        shares = {side: float(mask[where].mean()) for side, where in inside.items()}
        out.append({"first": first, "last": stop - 1} | shares)
    return out


def unfit(named: Named, capture: Capture) -> str | None:
    """Why a pattern can't be measured on the capture, a decoder's that reads one text; None where it can."""
    if named.problem.docs is not None:
        return "it needs documents, and the bundled capture is one text"
    heads = {layer.heads for layer in capture.layers.values()}
    if named.problem.heads > 1 and heads != {named.problem.heads}:
        return f"it is for {named.problem.heads} heads, and the bundled model has {', '.join(map(str, sorted(heads)))}"
    problem = ps.Problem(len(capture.tokens), heads=max(heads))
    if any(ps.lower(named.pattern - ps.causal, problem, block=BLOCK, layer=layer).pairs for layer in capture.layers):
        return "it sees later tokens, and the bundled model is a decoder"
    return None


def kept(named: Named, capture: Capture) -> dict[str, Any]:
    """What the pattern keeps of the capture's attention, over its layers and heads; exact, rounded for the file.

    `pairs_computed` are those in active tiles, `gflop` the forward cost of them: four operations a pair and dimension.
    """
    report = analyze(named.pattern, capture, block=BLOCK, metrics=["recall", "oracle", "output_error", "distance"])
    assert report.recall
    assert report.output_error
    assert report.oracle_recall is not None
    computed = pairs = 0
    for number, layer in capture.layers.items():
        problem = ps.Problem(layer.tokens, heads=layer.heads)
        layout = ps.lower(named.pattern, problem, block=BLOCK, layer=number)
        computed, pairs = computed + layout.tile_pairs, pairs + layout.pairs
    triangle = sum(layer.heads * layer.tokens * (layer.tokens + 1) // 2 for layer in capture.layers.values())
    return {
        "recall": _round(report.recall.mean),
        "recall_p1": _round(report.recall.p1),
        "oracle_recall": _round(report.oracle_recall),
        "output_error": _round(report.output_error.rel_l2),
        "token_density_of_causal": _round(pairs / triangle),
        "pairs_computed": computed,
        "gflop": _round(4 * HEAD_DIM * computed / 1e9),
        "mass_by_distance": [
            {"first": band.first, "last": band.last, "dense": _round(band.dense), "kept": _round(band.kept)}
            for band in report.figures["distance"].bands
        ],
    }


def _round(value: float) -> float:
    return float(f"{value:.{DIGITS}g}")
