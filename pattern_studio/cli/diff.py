"""`pattern-studio diff`: what one pattern has and another has not."""

from __future__ import annotations

import argparse

from ..parse import parse
from . import options as asked

ABOUT = "how two patterns differ: equal, subset, superset or crossing"


def arguments(parser: argparse.ArgumentParser) -> None:
    asked.add_pattern(parser)
    parser.add_argument("other", help="the second pattern")
    asked.add_problem(parser)


def run(options: argparse.Namespace) -> None:
    from ..diff import diff

    one, two = parse(options.pattern), parse(options.other)
    print(diff(one, two, asked.problem(options), asked.block(options), layer=options.layer))
