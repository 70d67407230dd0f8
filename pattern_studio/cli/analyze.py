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
    asked.add_lossy(parser)
    asked.add_json(parser)


def run(options: argparse.Namespace) -> None:
    from ..metrics import analyze
    from ..metrics.settling import settling

    pattern, block = parse(options.pattern), asked.block(options)
    capture = asked.capture(options)
    settle = None if options.lossy is None else asked.settle(options.lossy)
    report = analyze(pattern, capture, block=block)
    changed = None if settle is None else settling(pattern, capture, settle, block=block)
    if options.json:
        asked.print_json(report.as_dict() | ({} if changed is None else {"lossy": changed.as_dict()}))
        return
    print(report.to_markdown())
    if changed is not None:
        print(f"\n{changed}")
