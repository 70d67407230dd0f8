"""`pattern-studio show`: the tile map, in the terminal or as a file."""

from __future__ import annotations

import argparse
from pathlib import Path

from ..lowering import lower
from ..parse import parse
from . import options as asked

ABOUT = "draw the tile map in the terminal or to a file"


def arguments(parser: argparse.ArgumentParser) -> None:
    asked.add_pattern(parser)
    asked.add_problem(parser)
    parser.add_argument("--head", type=int, default=0, help="which head to draw (0)")
    parser.add_argument("--out", type=Path, help="a .png, .svg or .html file instead of the terminal")


def run(options: argparse.Namespace) -> None:
    from ..plot import draw, write

    pattern, block = parse(options.pattern), asked.block(options)
    layout = lower(pattern, asked.problem(options), block=block, layer=options.layer)
    if options.out is None:
        print(draw(layout, head=options.head))
    else:
        write(layout, options.out, head=options.head)
        print(f"wrote {options.out}")
