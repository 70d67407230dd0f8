"""The registry of primitives: one file each, listed here by hand. See CONTRIBUTING.md to add one."""

from __future__ import annotations

from . import (
    axial,
    blocks,
    butterfly,
    causal,
    chunk,
    dense,
    dilated,
    docs,
    empty,
    expander,
    globals,
    heads,
    hierarchical,
    layers,
    longnet,
    neighborhood,
    prefix,
    radial,
    random,
    rect,
    sink,
    slash,
    strided,
    tile_window,
    vertical,
    window,
)

PRIMITIVES = {
    module.__name__.rsplit(".", 1)[1]: module.PATTERN
    for module in (
        dense,
        empty,
        causal,
        prefix,
        window,
        dilated,
        strided,
        chunk,
        sink,
        globals,
        vertical,
        slash,
        hierarchical,
        longnet,
        random,
        expander,
        butterfly,
        axial,
        neighborhood,
        tile_window,
        radial,
        rect,
        blocks,
        docs,
        heads,
        layers,
    )
}
