"""json: our own file with the pattern and what it is for, to be read by people and programs."""

from __future__ import annotations

import json

from ..expr import Pattern
from ._bundle import parsed
from ._frame import Request, Target, Written, readable
from ._native import design, header

MAX_BYTES = 32 << 20  # the longest pattern text is a megabyte; document lengths can take more


def write(request: Request) -> Written:
    """The header of all native files by itself: schema, version, pattern text and hash, problem, block, layer. Exact.

    >>> import pattern_studio as ps
    >>> from pattern_studio.exporters import export
    >>> "causal & window(255, 0)" in export(ps.causal & ps.window(255, 0), ps.Problem(256), 128, to="json").content
    True
    """
    return Written(json.dumps(header(request, "json"), indent=2) + "\n")


def read(source: bytes) -> Pattern:
    """The pattern; `read_design` gives the problem and the block too."""
    return design(parsed(readable(source, MAX_BYTES)), "json").pattern


TARGET = Target(
    name="json",
    about="the pattern's text with problem and block size",
    consumer="Pattern Studio, schema pattern-studio/json version 1",
    suffix=".json",
    media_type="application/json",
    write=write,
    proof="run",
    read=read,
)
