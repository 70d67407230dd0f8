"""The registry of primitives: one file each, listed here by hand. See CONTRIBUTING.md to add one."""

from __future__ import annotations

from . import (
    blocks,
    causal,
    chunk,
    dense,
    dilated,
    docs,
    empty,
    globals,
    heads,
    layers,
    random,
    rect,
    sink,
    strided,
    window,
)

PRIMITIVES = {
    module.__name__.rsplit(".", 1)[1]: module.PATTERN
    for module in (
        dense,
        empty,
        causal,
        window,
        dilated,
        strided,
        chunk,
        sink,
        globals,
        random,
        rect,
        blocks,
        docs,
        heads,
        layers,
    )
}
