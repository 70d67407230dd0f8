"""`pattern-studio explain`: why one query may or may not see one key."""

from __future__ import annotations

import argparse

from ..parse import parse
from . import options as asked

ABOUT = "why a query may or may not see a key"


def arguments(parser: argparse.ArgumentParser) -> None:
    asked.add_pattern(parser)
    parser.add_argument("query", type=int, help="the query's position i")
    parser.add_argument("key", type=int, help="the key's position j")
    asked.add_problem(parser)
    parser.add_argument("--head", type=int, default=0, help="which head (0)")


def run(options: argparse.Namespace) -> None:
    from ..explain import explain

    pattern, problem = parse(options.pattern), asked.problem(options)
    print(explain(pattern, options.query, options.key, problem, head=options.head, layer=options.layer))
