"""`pattern-studio doctor`: what keeps a target from holding a pattern, and the smallest change that makes it fit."""

from __future__ import annotations

import argparse

from ..parse import parse
from . import options as asked

ABOUT = "say what does not fit a target, and the smallest change that makes it fit"


def arguments(parser: argparse.ArgumentParser) -> None:
    asked.add_pattern(parser)
    asked.add_problem(parser)
    parser.add_argument("--to", required=True, help="the target; see `pattern-studio targets`")
    parser.add_argument("--head-dim", type=int, help="of q, k and v")
    parser.add_argument("--kv-heads", type=int, help="KV heads, if fewer than query heads")


def run(options: argparse.Namespace) -> int:
    from ..exporters import doctor

    diagnosis = doctor(
        parse(options.pattern),
        asked.problem(options),
        asked.block(options),
        options.to,
        layer=options.layer,
        head_dim=options.head_dim,
        kv_heads=options.kv_heads,
    )
    print(diagnosis)
    return 0 if diagnosis.fits else 1
