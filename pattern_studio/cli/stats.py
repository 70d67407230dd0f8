"""`pattern-studio stats`: densities, tiles and efficiency of a pattern, exact or settled into whole tiles."""

from __future__ import annotations

import argparse
import time
import tracemalloc

from ..errors import StudioError
from ..lowering import lower
from ..lowering.lossy import Lossy, cover, strict, threshold
from ..parse import parse
from . import options as asked

ABOUT = "densities, tiles and block efficiency of a pattern"


def arguments(parser: argparse.ArgumentParser) -> None:
    asked.add_pattern(parser)
    asked.add_problem(parser)
    parser.add_argument("--lossy", help="settle the partial tiles too, and count: cover, strict or threshold=0.5")
    asked.add_json(parser)


def run(options: argparse.Namespace) -> None:
    from ..metrics.density import layout_stats

    pattern, problem, block = parse(options.pattern), asked.problem(options), asked.block(options)
    tracemalloc.start()
    begin = time.perf_counter()
    stats = layout_stats(pattern, problem, block, options.layer).as_dict()
    stats["seconds"] = round(time.perf_counter() - begin, 6)
    stats["peak_mb"] = round(tracemalloc.get_traced_memory()[1] / 1e6, 3)
    tracemalloc.stop()
    if options.lossy is not None:
        settled = _settled(options.lossy, lower(pattern, problem, block=block, layer=options.layer))
        stats["lossy"] = settled.as_dict()
    (asked.print_json if options.json else asked.print_lines)(stats)


def _settled(name: str, layout) -> Lossy:
    word, _, share = name.partition("=")
    if word == "threshold" and share:
        try:
            return threshold(layout, float(share))
        except ValueError as error:  # of float() and, with its own words, of threshold()
            if isinstance(error, StudioError):
                raise
    elif name in ("cover", "strict"):
        return {"cover": cover, "strict": strict}[name](layout)
    raise StudioError(f"--lossy takes cover, strict or threshold=SHARE (such as threshold=0.5), got {name!r}")
