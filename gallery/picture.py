"""The picture of a named pattern: SVG in three layers that follow the reader's light or dark setting.

Partial tiles lie below in a faint blue, what is allowed in them above, full tiles in the colour that stands out most.
Cells are squares of one or more tokens; where a cell holds several pairs, its shade says how many are allowed.
"""

from __future__ import annotations

from html import escape

import numpy as np
from numpy.typing import NDArray

from pattern_studio.plot import DensityMap, density_map
from pattern_studio.plot.colours import DARK as ON_DARK
from pattern_studio.plot.colours import LIGHT as ON_LIGHT
from pattern_studio.plot.colours import Colours

from .named import Named

CELLS = 128  # of a side, at most
LEVELS = 4  # shades of partly allowed cells
CLASSES = {"ground": "background", "reach": "masked", "part": "partial", "full": "full", "edge": "line"}


def _rules(theme: Colours) -> dict[str, str]:
    """What the classes of a picture look like: the studio's own colours."""
    return {name: getattr(theme, meaning) for name, meaning in CLASSES.items()}


LIGHT, DARK = _rules(ON_LIGHT), _rules(ON_DARK)


def cells_of(named: Named) -> DensityMap:
    """The pair counts of every cell of the drawn head."""
    return density_map(named.layout, named.head, max_cells=CELLS)


def levels(cells: DensityMap) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """(below, above), each uint8 [row cells, key cells]: what the two layers show.

    below: 1 where a tile is partial. above: 0 nothing, 1 to LEVELS the share of allowed pairs in a partial tile (its
    square root, or thin lines would vanish), LEVELS + 1 a full tile.
    """
    share = np.sqrt(cells.partial / np.maximum(cells.reach, 1))
    above = np.where(cells.partial > 0, np.ceil(LEVELS * share), 0)
    above[cells.full > 0] = LEVELS + 1
    return (cells.reach > 0).astype(np.uint8), above.astype(np.uint8)


def alt(named: Named) -> str:
    """What the picture shows, in words, for those who can't see it."""
    problem, layout = named.problem, named.layout
    where = f", head {named.head} of {problem.heads}" if problem.heads > 1 else ""
    where += "" if named.layer is None else f", layer {named.layer}"
    pairs = int(cells_of(named).pairs.sum())
    share = pairs / (problem.q_len * problem.kv_len)
    return (
        f"Tile map of {named.title}{where}: {problem.q_len} queries downwards, {problem.kv_len} keys across, tiles of "
        f"{layout.block[0]}; {100 * share:.3g} % of all pairs are allowed. {named.note}"
    )


def svg(named: Named) -> str:
    """The picture as SVG text; the same input gives the same text.

    >>> from gallery.named import FOLDER, load
    >>> svg(load(FOLDER / "mistral.txt"))[:30]
    '<svg xmlns="http://www.w3.org/'
    """
    cells = cells_of(named)
    below, above = levels(cells)
    tall, wide = below.shape
    rules = "".join(f".{name}{{fill:{colour}}}" for name, colour in LIGHT.items() if name != "edge")
    dark = "".join(f".{name}{{fill:{colour}}}" for name, colour in DARK.items() if name != "edge")
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide} {tall}" width="{4 * wide}" height="{4 * tall}" '
        f'role="img" shape-rendering="crispEdges">\n<title>{escape(alt(named))}</title>\n'
        f"<style>{rules}@media(prefers-color-scheme:dark){{{dark}}}</style>\n"
        f'<path class="ground" d="M0 0h{wide}v{tall}h-{wide}z"/>\n{drawing(below, above)}\n</svg>\n'
    )


def drawing(below: NDArray[np.uint8], above: NDArray[np.uint8]) -> str:
    """The paths of both layers, without the frame: what pages put into a picture of their own."""
    parts = [f'<path class="reach" d="{_path(below == 1)}"/>'] if below.any() else []
    for level in range(1, LEVELS + 1):
        if (above == level).any():
            faint = "" if level == LEVELS else f' fill-opacity="{level / LEVELS:g}"'
            parts.append(f'<path class="part"{faint} d="{_path(above == level)}"/>')
    if (above > LEVELS).any():
        parts.append(f'<path class="full" d="{_path(above > LEVELS)}"/>')
    return "\n".join(parts)


def _path(mask: NDArray[np.bool_]) -> str:
    """Rectangles that make up the mask: runs along a row, joined with equal runs below."""
    out: list[str] = []
    growing: dict[tuple[int, int], int] = {}
    for row in range(len(mask) + 1):
        line = mask[row] if row < len(mask) else np.zeros(mask.shape[1], bool)
        edges = np.flatnonzero(np.diff(np.r_[False, line, False])).reshape(-1, 2).tolist()
        runs = {(first, stop) for first, stop in edges}
        for run in [run for run in growing if run not in runs]:
            top, (first, stop) = growing.pop(run), run
            out.append(f"M{first} {top}h{stop - first}v{row - top}h-{stop - first}z")
        for run in sorted(runs):
            growing.setdefault(run, row)
    return "".join(out)
