"""`pattern-studio ...`: the same functions as in Python, one file a command, with one line for every error."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from types import ModuleType

from ..errors import StudioError
from . import analyze, app, capture, conventions, diff, doctor, explain, export, generate, read, show, stats, targets

# A command is a module: its name, ABOUT, arguments(parser) and run(options).
COMMANDS: tuple[ModuleType, ...] = (
    stats,
    show,
    analyze,
    capture,
    export,
    targets,
    doctor,
    generate,
    read,
    explain,
    diff,
    conventions,
    app,
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; bad input is one line on stderr and exit code 2."""
    options = _parser().parse_args(argv)
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
    for command in COMMANDS:
        name = command.__name__.rpartition(".")[2]
        sub = commands.add_parser(name, help=command.ABOUT, description=command.ABOUT)
        command.arguments(sub)
        sub.set_defaults(run=command.run)
    return parser
