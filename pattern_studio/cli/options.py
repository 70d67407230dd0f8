"""What several commands ask for and how they print: the pattern, the problem, the block, the capture, figures."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import StudioError
from ..layout import BlockLayout
from ..lowering.lossy import Lossy, cover, strict, threshold
from ..problem import Problem, block_shape

if TYPE_CHECKING:  # torch is only imported by the commands that read a capture
    from ..capture import Capture


def add_pattern(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("pattern", help='such as "causal & (window(63, 0) | sink(4))"')


def add_problem(parser: argparse.ArgumentParser, *, layer: bool = True) -> None:
    parser.add_argument("--q-len", type=int, required=True, help="query rows, in tokens")
    parser.add_argument("--kv-len", type=int, help="keys, in tokens (as q-len)")
    parser.add_argument("--q-offset", type=int, help="position of query row 0 (kv-len - q-len)")
    parser.add_argument("--heads", type=int, default=1, help="query heads (1)")
    parser.add_argument("--docs", help="document lengths, such as 3,5,8")
    add_block(parser)
    if layer:
        parser.add_argument("--layer", type=int, help="for patterns that differ by layer")


def add_block(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--block", default="128", help="tokens, 128 or 128x8 (128)")


def add_capture(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--capture", default="bundled", help="a capture file, or 'bundled' (the default)")


def add_json(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def add_lossy(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--lossy", help="settle the partial tiles too, and count: cover, strict or threshold=0.5")


def problem(options: argparse.Namespace) -> Problem:
    docs = None if options.docs is None else tuple(numbers("--docs", options.docs, ","))
    kv_len = options.q_len if options.kv_len is None else options.kv_len
    return Problem(options.q_len, kv_len, options.q_offset, options.heads, docs)


def block(options: argparse.Namespace) -> tuple[int, int]:
    sizes = numbers("--block", options.block.replace(",", "x"), "x")
    return block_shape(sizes[0] if len(sizes) == 1 else sizes)


def capture(options: argparse.Namespace) -> Capture:
    from ..capture import Capture, bundled

    return bundled() if options.capture == "bundled" else Capture.load(options.capture)


def read_text(file: Path) -> str:
    """What a text file holds; an OSError where it is not there."""
    try:
        return file.read_text("utf-8")
    except UnicodeDecodeError as error:
        raise StudioError(f"{file}: expected UTF-8 text, got a byte that is none ({error}); convert it") from None


def settle(text: str) -> Callable[[BlockLayout], Lossy]:
    """The lossy lowering that a text names."""
    name, _, share = text.partition("=")
    if text in ("cover", "strict"):
        return {"cover": cover, "strict": strict}[text]
    try:
        limit = float(share) if name == "threshold" else None
    except ValueError:
        limit = None
    if limit is None:
        raise StudioError(f"--lossy takes cover, strict or threshold=SHARE (such as threshold=0.5), got {text!r}")
    return partial(threshold, share=limit)


def numbers(name: str, text: str, separator: str) -> list[int]:
    try:
        return [int(part) for part in text.split(separator)]
    except ValueError:
        raise StudioError(f"{name} takes whole numbers separated by {separator!r}, got {text!r}") from None


def print_json(values: dict[str, Any]) -> None:
    print(json.dumps(values, indent=2, allow_nan=False))


def print_lines(values: dict[str, Any]) -> None:
    """One line a value; a nested dict is one line of its values."""
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
