"""The tile map: a layout as an interactive Plotly figure, equally quick for a thousand and a million tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..errors import StudioError
from ..layout import BlockLayout
from .colours import LIGHT, Colours, rgb
from .density import DensityMap, density_map
from .grid import Axis, Viewport
from .hover import hover_layer
from .shade import FULL_CODE, caption, legend, palette, shades
from .ticks import label, ticks

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

RULED_TILES = 64  # with more tiles along an axis than this, lines between them would hide the map
FEW_CELLS = 40  # up to so many along an axis, single cells are told apart by lines
FONT = "'Source Sans', 'Source Sans Pro', 'Source Sans 3', system-ui, sans-serif"


def graph_objects() -> Any:
    """Plotly's graph_objects, or an error that says how to get it."""
    try:
        import plotly.graph_objects
    except ImportError as error:
        raise StudioError(
            "expected plotly for an interactive map, and it is not installed; pip install 'pattern-studio[app]', "
            "or draw a .png or .svg, which need nothing"
        ) from error
    return plotly.graph_objects


def tile_map(
    layout: BlockLayout,
    head: int = 0,
    viewport: Viewport | None = None,
    max_cells: int = 512,
    *,
    pool: str = "mean",
    height: int = 560,
    colours: Colours = LIGHT,
) -> Figure:
    """One head of a layout as a heatmap: axes in tokens, row 0 on top, hover with token ranges and kind.

    Args:
        layout: any layout; nothing of size q_len x kv_len is made.
        head: which head.
        viewport: the part to draw, in tokens; None is everything. The smaller it is, the finer the cells,
            down to single tokens.
        max_cells: the most cells along an axis.
        pool: how several tiles share a cell: "mean" density, or "max", the fullest kind.
        height: of the figure, in pixels.
        colours: LIGHT or DARK of plot/colours.py.

    Raises:
        StudioError: plotly is missing, no such head, or a viewport outside the layout.

    Example:
        >>> import pattern_studio as ps
        >>> figure = tile_map(ps.lower(ps.parse("causal & window(255, 0)"), q_len=65536, block=128))
        >>> figure.data[0].z.shape, figure.layout.yaxis.range
        ((512, 512), (65536, 0))
    """
    go = graph_objects()
    cells = density_map(layout, head, viewport, max_cells)
    rows, keys = cells.grid.rows, cells.grid.keys
    figure = go.Figure(heatmap(go, cells, pool, colours))
    figure.add_traces([*_ruled(go, cells, colours), hover_layer(go, layout, head, cells)])
    axis: dict[str, Any] = {
        "showgrid": False,
        "zeroline": False,
        "ticks": "outside",
        "ticklen": 4,
        "tickcolor": colours.line,
        "linecolor": colours.line,
        "mirror": True,
        "showline": True,
        "constrain": "domain",
    }
    row_ticks, key_ticks = ticks(rows.start, rows.stop), ticks(keys.start, keys.stop)
    figure.update_layout(
        height=height,
        margin={"l": 66, "r": 14, "t": 12, "b": 78},
        paper_bgcolor=colours.background,
        plot_bgcolor=colours.background,
        font={"family": FONT, "size": 13, "color": colours.ink},
        dragmode="select",
        newselection={"line": {"color": colours.ink, "width": 1, "dash": "solid"}},
        hoverlabel={
            "bgcolor": colours.background,
            "bordercolor": colours.line,
            "font": {"family": FONT, "color": colours.ink, "size": 13},
            "align": "left",
        },
        showlegend=False,
        annotations=[
            _below(f"key (token), {caption(cells, pool)}", 26, colours),
            _below(_legend(cells, pool, colours), 48, colours),
        ],
        xaxis={
            **axis,
            "range": [keys.start, keys.stop],
            "tickvals": key_ticks,
            "ticktext": [label(t) for t in key_ticks],
        },
        yaxis={
            **axis,
            "range": [rows.stop, rows.start],
            "tickvals": row_ticks,
            "ticktext": [label(t) for t in row_ticks],
            "title": {"text": "query row (token)", "standoff": 6, "font": {"size": 13, "color": colours.quiet}},
        },
    )
    if 0.25 <= (rows.stop - rows.start) / (keys.stop - keys.start) <= 4:  # else one side would be a hairline
        figure.update_yaxes(scaleanchor="x", scaleratio=1)
    return figure


def heatmap(go: Any, cells: DensityMap, pool: str, colours: Colours = LIGHT) -> Any:
    """The cells alone, without axes or hover: a trace of Plotly's graph_objects, which are `go`."""
    table = palette(cells, pool, colours)
    scale = [[code / FULL_CODE, f"rgb({r},{g},{b})"] for code, (r, g, b) in enumerate(table.tolist())]
    return go.Heatmap(
        z=shades(cells, pool),
        x=cells.grid.keys.edges,
        y=cells.grid.rows.edges,
        zmin=0,
        zmax=FULL_CODE,
        colorscale=scale,
        showscale=False,
        hoverinfo="skip",
        name="tiles",
    )


def _ruled(go: Any, cells: DensityMap, colours: Colours) -> list[Any]:
    """Faint lines between tiles, or between cells where these are few, as one trace."""
    rows, keys = cells.grid.rows, cells.grid.keys
    if max(len(_borders(rows)), len(_borders(keys))) > RULED_TILES:
        return []
    x: list[float | None] = []
    y: list[float | None] = []
    for at in _borders(keys):
        x, y = x + [at, at, None], y + [rows.start, rows.stop, None]
    for at in _borders(rows):
        x, y = x + [keys.start, keys.stop, None], y + [at, at, None]
    line = {"color": f"rgba{(*rgb(colours.ink), 0.10)}", "width": 1}
    return [go.Scatter(x=x, y=y, mode="lines", line=line, hoverinfo="skip", showlegend=False, name="tile borders")]


def _borders(axis: Axis) -> list[int]:
    step = axis.size if axis.cells <= FEW_CELLS else axis.block
    return list(range((axis.start // step + 1) * step, axis.stop, step))


def _below(text: str, pixels: int, colours: Colours) -> dict[str, Any]:
    """A line of text centred under the map; axis titles would not follow a map that keeps its aspect."""
    place = {"xref": "paper", "x": 0.5, "yref": "paper", "y": 0, "yanchor": "top", "yshift": -pixels}
    return {**place, "text": text, "showarrow": False, "font": {"size": 13, "color": colours.quiet}}


def _legend(cells: DensityMap, pool: str, colours: Colours) -> str:
    swatches = [
        f"<span style='font-size:17px;color:{colours.quiet if colour == colours.background else colour}'>"
        f"{'□' if colour == colours.background else '■'}</span> {meaning}"
        for colour, meaning in legend(cells, pool, colours)
    ]
    return "\u2003".join(swatches)
