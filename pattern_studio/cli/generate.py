"""`pattern-studio generate`: a pattern of a family by budget."""

from __future__ import annotations

import argparse

from ..errors import StudioError
from . import options as asked

ABOUT = "a pattern by budget: as much of a family as a block density pays for"


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("family", help="local_window, dilated_sparse, global_local or hierarchical")
    parser.add_argument("density", type=float, help="the share of tiles to keep, such as 0.1")
    asked.add_problem(parser, layer=False)
    parser.add_argument("--of", choices=("causal", "all"), help="a share of the causal triangle's tiles, or of all")
    parser.add_argument("--bidirectional", action="store_true", help="look ahead too (the default is causal)")
    asked.add_json(parser)


def run(options: argparse.Namespace) -> None:
    from ..generators import GENERATORS

    family = GENERATORS.get(options.family)
    if family is None:
        raise StudioError(f"generate knows {', '.join(GENERATORS)}, got {options.family!r}")
    made = family(
        options.density,
        asked.problem(options),
        asked.block(options),
        causal=not options.bidirectional,
        of=options.of,
    )
    if options.json:
        asked.print_json(made.as_dict())
    else:
        print(made)
