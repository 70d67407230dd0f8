"""`pattern-studio analyze`: what a pattern keeps of a real model's attention."""

from __future__ import annotations

import argparse

from ..parse import parse
from . import options as asked

ABOUT = "what the pattern keeps of a real model's attention"


def arguments(parser: argparse.ArgumentParser) -> None:
    asked.add_pattern(parser)
    asked.add_capture(parser)
    asked.add_block(parser)
    asked.add_json(parser)


def run(options: argparse.Namespace) -> None:
    from ..metrics import analyze

    pattern, block = parse(options.pattern), asked.block(options)
    report = analyze(pattern, asked.capture(options), block=block)
    if options.json:
        asked.print_json(report.as_dict())
    else:
        print(report.to_markdown())
