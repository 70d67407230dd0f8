"""`pattern-studio conventions`: what a config.json or flash's window_size means, and whether a pattern is that."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from ..errors import StudioError
from ..parse import parse
from . import options as asked

ABOUT = "what a Hugging Face config or a flash (left, right) means, and whether a pattern matches"
MAX_BYTES = 10_000_000  # the longest config that is read


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--pattern", help="hold this pattern against it; a difference is exit code 1")
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--config", type=Path, help="a model's config.json")
    source.add_argument("--flash", help="flash's window_size, such as --flash=255,0 (-1 is an open side)")
    parser.add_argument("--causal", action="store_true", help="with --flash: causal=True")


def run(options: argparse.Namespace) -> int:
    from ..conventions import check, read_config, read_flash

    if options.config is not None:
        if options.causal:
            raise StudioError("--causal belongs to --flash; a config says itself whether it is causal")
        convention = read_config(_config(options.config))
    else:
        window = asked.numbers("--flash", options.flash, ",")
        if len(window) != 2:
            raise StudioError(f"--flash takes left,right, got {options.flash!r}")
        convention = read_flash(window[0], window[1], options.causal)
    if options.pattern is None:
        print(convention)
        return 0
    checkup = check(parse(options.pattern), convention)
    print(checkup)
    return 0 if checkup.matches else 1


def _config(file: Path) -> Any:
    if file.stat().st_size > MAX_BYTES:
        raise StudioError(f"{file} has more than {MAX_BYTES:,} bytes: no config.json is that long")
    try:
        return json.loads(file.read_text())
    except (ValueError, RecursionError) as error:
        raise StudioError(f"{file} is no JSON text: {error}; give a model's config.json") from None
