"""`pattern-studio analyze`: what a pattern keeps of a real model's attention."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from ..errors import StudioError
from ..parse import parse
from . import options as asked

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
    report = analyze(pattern, capture, block=block, layers=layers)
    changed = None if settle is None else settling(pattern, capture, settle, block=block, layers=layers)
    if options.out is not None:
        options.out.write_text(WRITERS[options.out.suffix](report), encoding="utf-8")
        print(f"wrote {options.out}")
    elif options.json:
        asked.print_json(report.as_dict() | ({} if changed is None else {"lossy": changed.as_dict()}))
        return
    else:
        print(report.to_markdown())
    if changed is not None:
        print(f"\n{changed}")
