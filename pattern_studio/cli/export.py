"""`pattern-studio export`: the pattern as another library's code or file."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

from ..errors import StudioError
from ..expr import Pattern
from ..parse import parse
from ..problem import Problem
from . import options as asked

ABOUT = "write the pattern for another library"


def arguments(parser: argparse.ArgumentParser) -> None:
    asked.add_pattern(parser)
    asked.add_problem(parser)
    parser.add_argument("--head", type=int, help="write this head's pattern alone, for targets with one for all heads")
    parser.add_argument("--to", required=True, help="the target; see `pattern-studio targets`")
    parser.add_argument("--allow", default="", help="take an inexact export too: cover, lossy or cover,lossy")
    parser.add_argument("--out", type=Path, help="the file to write (the terminal, for text)")


def run(options: argparse.Namespace) -> None:
    from ..exporters import export

    pattern, problem, block = parse(options.pattern), asked.problem(options), asked.block(options)
    if options.head is not None:
        pattern, problem = _alone(pattern, problem, options.head, options.layer)
    allow = [word for word in options.allow.split(",") if word]
    result = export(pattern, problem, block, to=options.to, layer=options.layer, allow=allow)
    content = result.content
    if options.out is not None:
        options.out.write_bytes(content if isinstance(content, bytes) else content.encode())
        print(f"wrote {options.out} ({result.fidelity})")
    elif isinstance(content, bytes):
        raise StudioError(f"{options.to} is a binary format: say where to write it with --out FILE")
    else:
        print(content)


def _alone(pattern: Pattern, problem: Problem, head: int, layer: int | None) -> tuple[Pattern, Problem]:
    """The pattern of one head, and the problem with that head only."""
    if not 0 <= head < problem.heads:
        raise StudioError(f"expected --head from 0 to {problem.heads - 1}, the last of --heads, got {head}")
    return pattern.resolve(head, layer), replace(problem, heads=1)
