"""Where two patterns differ: one map with the pairs of one, of the other, and of both."""

from __future__ import annotations

import numpy as np
import plotly.graph_objects as go

from pattern_studio import BlockLayout
from pattern_studio.diff import Diff
from pattern_studio.plot import Viewport, density_map
from pattern_studio.plot.colours import ramp

from ..theme import colours

CELLS = 128
STEPS = 20  # shades of one colour: how much of a cell it is


def figure(shown: BlockLayout, found: Diff, head: int, viewport: Viewport | None) -> go.Heatmap:
    """A heatmap of one head: blue where both keep pairs, orange only the first, green only the second.

    A cell with pairs of several kinds takes the colour of a difference before that of what both keep, so
    that no difference is hidden; its shade says how much of the cell differs.
    """
    of_a, only_a, only_b = (
        density_map(layout, head, viewport, CELLS) for layout in (shown, found.only_a, found.only_b)
    )
    shares = np.stack([(of_a.pairs - only_a.pairs), only_a.pairs, only_b.pairs]) / of_a.grid.area
    kind = np.where(shares[2] > shares[1], 2, np.where(shares[1] > 0, 1, 0))
    share = np.take_along_axis(shares, kind[None], 0)[0]
    code = np.where(share > 0, 1 + kind * STEPS + np.ceil(share * STEPS) - 1, 0)
    c = colours()
    ends = ((c.full_faint, c.full), (c.only_a_faint, c.only_a), (c.only_b_faint, c.only_b))
    shades = np.concatenate(
        [ramp(2, c.background, c.background)[:1], *(ramp(STEPS, faint, strong) for faint, strong in ends)]
    )
    last = 3 * STEPS
    return go.Heatmap(
        z=code,
        x=of_a.grid.keys.edges,
        y=of_a.grid.rows.edges,
        zmin=0,
        zmax=last,
        colorscale=[[n / last, f"rgb({r},{g},{b})"] for n, (r, g, b) in enumerate(shades.tolist())],
        showscale=False,
        customdata=np.moveaxis(np.rint(shares * 1000) / 10, 0, -1),
        hovertemplate="both %{customdata[0]} %<br>only A %{customdata[1]} %"
        "<br>only the other %{customdata[2]} % of this cell<extra></extra>",
    )
