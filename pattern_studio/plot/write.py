"""A layout as a picture file; the suffix says which kind."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from ..errors import StudioError
from ..layout import BlockLayout
from .picture import picture
from .png import png
from .svg import svg
from .tile_map import tile_map


def _html(layout: BlockLayout, head: int) -> bytes:
    # Plotly's own script goes into the file, so that it opens without a network.
    figure = tile_map(layout, head, height=760)
    return figure.to_html(include_plotlyjs=True, full_html=True, config={"displaylogo": False}).encode()


WRITERS: dict[str, Callable[[BlockLayout, int], bytes]] = {
    ".png": lambda layout, head: png(picture(layout, head, max_cells=512)),
    ".svg": lambda layout, head: svg(picture(layout, head)).encode(),
    ".html": _html,
}


def write(layout: BlockLayout, path: str | os.PathLike[str], head: int = 0) -> None:
    """Write one head of a layout as `.png`, `.svg` or a self-contained interactive `.html`.

    Raises:
        StudioError: another suffix, a path that can't be written, no such head, or `.html` without plotly.

    Example:
        >>> import pattern_studio as ps, tempfile, pathlib
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     write(ps.lower(ps.causal, q_len=512), pathlib.Path(folder, "causal.svg"))
    """
    target = Path(path)
    if target.suffix.lower() not in WRITERS:
        got = f"{target.suffix!r}" if target.suffix else "no suffix"
        raise StudioError(
            f"expected a picture file ending in {', '.join(WRITERS)}, got {got} in {str(path)!r}; add one"
        )
    data = WRITERS[target.suffix.lower()](layout, head)
    try:
        target.write_bytes(data)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise StudioError(f"{path}: expected a writable path, got {str(reason)!r}; check its folder") from error
