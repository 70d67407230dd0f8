"""`pattern-studio analyze`: what a pattern keeps of a real model's attention."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import StudioError
from ..expr import Pattern
from ..parse import parse
from ..problem import Problem
from . import options as asked

if TYPE_CHECKING:
    from ..capture import Capture
    from ..metrics import ReceptiveField
    from ..metrics.loss import LossReport
    from ..metrics.retrieval import CopyReport

WRITERS = {
    ".json": lambda report: json.dumps(report.as_dict(), indent=2, allow_nan=False) + "\n",
    ".md": lambda report: report.to_markdown(),
    ".html": lambda report: report.to_html(),
}

ABOUT = "what the pattern keeps of a real model's attention"


def arguments(parser: argparse.ArgumentParser) -> None:
    asked.add_pattern(parser)
    asked.add_capture(parser)
    asked.add_block(parser)
    parser.add_argument("--layers", help="layers of the capture, such as 7,20 (all)")
    parser.add_argument("--out", type=Path, help="write the report there instead: .json, .md or .html with figures")
    parser.add_argument("--depth", type=int, help="also its receptive field through so many layers")
    parser.add_argument("--loss", metavar="MODEL", help="also swap it into this model (as capture --model) and run it")
    parser.add_argument("--text", type=Path, help="what that model reads: a UTF-8 file it has not seen")
    parser.add_argument("--tokens", type=int, help="of the text's beginning, the second half of them scored (1024)")
    parser.add_argument("--sensitivity", action="store_true", help="and swap each layer alone")
    parser.add_argument("--probe", action="store_true", help="and whether it still copies tokens from far back")
    asked.add_lossy(parser)
    asked.add_json(parser)


def run(options: argparse.Namespace) -> None:
    from ..metrics import analyze
    from ..metrics.settling import settling

    if options.out is not None and options.out.suffix not in WRITERS:
        raise StudioError(f"--out takes a file ending in {', '.join(WRITERS)}, got {str(options.out)!r}")
    layers = None if options.layers is None else asked.numbers("--layers", options.layers, ",")
    pattern, block = parse(options.pattern), asked.block(options)
    capture = asked.capture(options)
    settle = None if options.lossy is None else asked.settle(options.lossy)
    field = None if options.depth is None else _field(options.depth, pattern, capture)
    ran = [] if options.loss is None else _ran(options, pattern, block)
    report = analyze(pattern, capture, block=block, layers=layers)
    changed = None if settle is None else settling(pattern, capture, settle, block=block, layers=layers)
    if options.out is not None:
        options.out.write_text(WRITERS[options.out.suffix](report), encoding="utf-8")
        print(f"wrote {options.out}")
    elif options.json:
        values = report.as_dict() | ({} if changed is None else {"lossy": changed.as_dict()})
        values |= {} if field is None else {"receptive_field": field.as_dict()}
        asked.print_json(values | dict(zip(("loss", "probe"), (one.as_dict() for one in ran), strict=False)))
        return
    else:
        print(report.to_markdown())
    if field is not None:
        print(field.to_markdown())
    for one in ran:
        print(one.to_markdown())
    if changed is not None:
        print(f"\n{changed}")


def _field(depth: int, pattern: Pattern, capture: Capture) -> ReceptiveField:
    from ..metrics import receptive_field

    heads = max(layer.heads for layer in capture.layers.values())
    # Single tokens are exact; a capture may be longer than can be composed so.
    block = -(-len(capture.tokens) // 8192)
    return receptive_field(pattern, Problem(len(capture.tokens), heads=heads), layers=depth, block=block)


def _ran(options: argparse.Namespace, pattern: Pattern, block: tuple[int, int]) -> list[LossReport | CopyReport]:
    """What running the model gave: the loss, and the probe where it is asked for."""
    from ..capture.load import load_model
    from ..metrics.loss import next_token_loss
    from ..metrics.retrieval import copy_probe

    if options.text is None:
        raise StudioError("--loss runs a model on a text; say which with --text FILE")
    text = asked.read_text(options.text)
    loaded = load_model(options.loss, head=True)
    ids = loaded.ids(text, 1024 if options.tokens is None else options.tokens)

    def told(name: str) -> None:
        print(f"running {name}", file=sys.stderr)

    sensitivity = options.sensitivity
    ran: list[LossReport | CopyReport] = [
        next_token_loss(loaded.model, ids, pattern, block=block, sensitivity=sensitivity, progress=told)
    ]
    if not options.probe:
        return ran
    told("probe")
    return [*ran, copy_probe(loaded.model, ids, pattern, block=block)]
