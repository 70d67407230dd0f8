"""`pattern-studio ...`: the same functions as in Python, with one line for every error."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
import tracemalloc
from collections.abc import Sequence
from pathlib import Path

from .errors import StudioError
from .parse import parse
from .problem import Problem, block_shape


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; bad input is one line on stderr and exit code 2."""
    parser = _parser()
    options = parser.parse_args(argv)
    try:
        return options.run(options) or 0
    except BrokenPipeError:  # the reader went away, as `head` does: nothing is wrong
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115 - what is left is flushed there when Python ends
        return 0
    except (StudioError, OSError) as error:
        print(f"pattern-studio: {' '.join(str(error).split())}", file=sys.stderr)
        return 2


class _Parser(argparse.ArgumentParser):
    """argparse that keeps to the one line: its usage text is behind --help."""

    def error(self, message: str):
        print(f"{self.prog}: {message}; see {self.prog} --help", file=sys.stderr)
        raise SystemExit(2)


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="pattern-studio", description="Design, see, measure and export sparse-attention patterns.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND", parser_class=_Parser)

    def command(name: str, run, text: str, *, pattern: bool = True) -> argparse.ArgumentParser:
        sub = commands.add_parser(name, help=text, description=text)
        sub.set_defaults(run=run)
        if pattern:
            sub.add_argument("pattern", help='such as "causal & (window(63, 0) | sink(4))"')
        return sub

    stats = command("stats", _stats, "densities, tiles and block efficiency of a pattern")
    _problem_options(stats)
    stats.add_argument("--json", action="store_true", help="print one JSON object")

    show = command("show", _show, "draw the tile map in the terminal or to a file")
    _problem_options(show)
    show.add_argument("--head", type=int, default=0, help="which head to draw (0)")
    show.add_argument("--out", type=Path, help="a .png, .svg or .html file instead of the terminal")

    analyze = command("analyze", _analyze, "what the pattern keeps of a real model's attention")
    analyze.add_argument("--capture", default="bundled", help="a capture file, or 'bundled' (the default)")
    analyze.add_argument("--block", default="128", help="tokens, 128 or 128x8 (128)")
    analyze.add_argument("--json", action="store_true", help="print one JSON object")

    export = command("export", _export, "write the pattern for another library")
    _problem_options(export)
    export.add_argument("--to", required=True, help="the target; see `pattern-studio targets`")
    export.add_argument("--out", type=Path, help="the file to write (the terminal, for text)")

    command("targets", _targets, "the libraries and formats that export knows", pattern=False)
    explain = command("explain", _explain, "why a query may or may not see a key")
    explain.add_argument("query", type=int, help="the query's position i")
    explain.add_argument("key", type=int, help="the key's position j")
    _problem_options(explain)
    explain.add_argument("--head", type=int, default=0, help="which head (0)")

    diff = command("diff", _diff, "how two patterns differ: equal, subset, superset or crossing")
    diff.add_argument("other", help="the second pattern")
    _problem_options(diff)

    app = command("app", _app, "open Pattern Studio in the browser", pattern=False)
    app.add_argument("--port", type=int, default=8501)
    return parser


def _problem_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--q-len", type=int, required=True, help="query rows, in tokens")
    parser.add_argument("--kv-len", type=int, help="keys, in tokens (as q-len)")
    parser.add_argument("--q-offset", type=int, help="position of query row 0 (kv-len - q-len)")
    parser.add_argument("--heads", type=int, default=1, help="query heads (1)")
    parser.add_argument("--docs", help="document lengths, such as 3,5,8")
    parser.add_argument("--block", default="128", help="tokens, 128 or 128x8 (128)")
    parser.add_argument("--layer", type=int, help="for patterns that differ by layer")


def _problem(options: argparse.Namespace) -> Problem:
    docs = None if options.docs is None else tuple(_numbers("--docs", options.docs, ","))
    kv_len = options.q_len if options.kv_len is None else options.kv_len
    return Problem(options.q_len, kv_len, options.q_offset, options.heads, docs)


def _block(options: argparse.Namespace) -> tuple[int, int]:
    sizes = _numbers("--block", options.block.replace(",", "x"), "x")
    return block_shape(sizes[0] if len(sizes) == 1 else sizes)


def _numbers(name: str, text: str, separator: str) -> list[int]:
    try:
        return [int(part) for part in text.split(separator)]
    except ValueError:
        raise StudioError(f"{name} takes whole numbers separated by {separator!r}, got {text!r}") from None


def _stats(options: argparse.Namespace) -> None:
    from .metrics.density import layout_stats

    pattern, problem, block = parse(options.pattern), _problem(options), _block(options)
    tracemalloc.start()
    begin = time.perf_counter()
    stats = layout_stats(pattern, problem, block, options.layer).as_dict()
    stats["seconds"] = round(time.perf_counter() - begin, 6)
    stats["peak_mb"] = round(tracemalloc.get_traced_memory()[1] / 1e6, 3)
    tracemalloc.stop()
    _print(stats, options.json)


def _show(options: argparse.Namespace) -> None:
    from .lowering import lower
    from .plot import draw, write

    layout = lower(parse(options.pattern), _problem(options), block=_block(options), layer=options.layer)
    if options.out is None:
        print(draw(layout, head=options.head))
    else:
        write(layout, options.out, head=options.head)
        print(f"wrote {options.out}")


def _analyze(options: argparse.Namespace) -> None:
    from .capture import Capture, bundled
    from .metrics import analyze

    pattern, block = parse(options.pattern), _block(options)
    capture = bundled() if options.capture == "bundled" else Capture.load(options.capture)
    report = analyze(pattern, capture, block=block)
    if options.json:
        _print(report.as_dict(), True)
    else:
        print(report.to_markdown())


def _export(options: argparse.Namespace) -> None:
    from .exporters import export

    pattern = parse(options.pattern)
    result = export(pattern, _problem(options), _block(options), to=options.to, layer=options.layer)
    content = result.content
    if options.out is not None:
        options.out.write_bytes(content if isinstance(content, bytes) else content.encode())
        print(f"wrote {options.out} ({result.fidelity})")
    elif isinstance(content, bytes):
        raise StudioError(f"{options.to} is a binary format: say where to write it with --out FILE")
    else:
        print(content)


def _explain(options: argparse.Namespace) -> None:
    from .explain import explain

    pattern, problem = parse(options.pattern), _problem(options)
    print(explain(pattern, options.query, options.key, problem, head=options.head, layer=options.layer))


def _diff(options: argparse.Namespace) -> None:
    from .diff import diff

    print(diff(parse(options.pattern), parse(options.other), _problem(options), _block(options), layer=options.layer))


def _targets(options: argparse.Namespace) -> None:
    from .exporters import TARGETS

    for target in TARGETS.values():
        print(f"{target.name:24}{target.about}")


def _app(options: argparse.Namespace) -> None:
    try:
        from pattern_studio_app.launch import main as launch
    except ModuleNotFoundError as error:
        raise StudioError(f"the app needs {error.name}: pip install 'pattern-studio[app]'") from None
    launch(["--port", str(options.port)])


def _print(values: dict, as_json: bool) -> None:
    if as_json:
        print(json.dumps(values, indent=2, allow_nan=False))
        return
    for key, value in values.items():
        inner = ", ".join(f"{k} {_shown(v)}" for k, v in value.items()) if isinstance(value, dict) else _shown(value)
        print(f"{key.replace('_', ' '):18}{inner}")


def _shown(value: object) -> str:
    if value is None:
        return "none"
    if isinstance(value, float):
        return f"{value:.3g}"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return str(value)


if __name__ == "__main__":
    raise SystemExit(main())
