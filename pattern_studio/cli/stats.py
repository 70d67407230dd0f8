"""`pattern-studio stats`: densities, tiles and efficiency of a pattern, exact or settled into whole tiles."""

from __future__ import annotations

import argparse
import time
import tracemalloc

from ..lowering import lower
from ..parse import parse
from . import options as asked

ABOUT = "densities, tiles and block efficiency of a pattern"


def arguments(parser: argparse.ArgumentParser) -> None:
    asked.add_pattern(parser)
    asked.add_problem(parser)
    asked.add_lossy(parser)
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
        exact = lower(pattern, problem, block=block, layer=options.layer)
        stats["lossy"] = asked.settle(options.lossy)(exact).as_dict()
    (asked.print_json if options.json else asked.print_lines)(stats)
