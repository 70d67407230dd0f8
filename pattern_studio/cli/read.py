"""`pattern-studio read`: the pattern in a mask file or in an exported file."""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from ..errors import StudioError
from . import options as asked

ABOUT = "the pattern in a .npy mask, or in a file that export wrote"


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", type=Path, help="a bool .npy array [q, kv] or [heads, q, kv], or an exported file")
    parser.add_argument("--block", help="the array's cells are tiles of this many tokens, 128 or 128x8")
    parser.add_argument("--q-offset", type=int, help="position of query row 0 (kv-len - q-len)")
    asked.add_json(parser)


def run(options: argparse.Namespace) -> None:
    if options.file.suffix != ".npy":
        return _exported(options)
    from ..reading import read_block_mask, read_mask

    mask = _array(options.file)
    if options.block is None:
        found = read_mask(mask, options.q_offset)
    else:
        found = read_block_mask(mask, asked.block(options), q_offset=options.q_offset)
    if options.json:
        asked.print_json({"pattern": str(found.pattern), "named": found.named, "heads": found.problem.heads})
    else:
        print(found.pattern)
    return None


def _exported(options: argparse.Namespace) -> None:
    from ..exporters import read_design

    made = read_design(options.file)
    if options.json:
        problem = made.problem
        asked.print_json(
            {
                "pattern": str(made.pattern),
                "q_len": problem.q_len,
                "kv_len": problem.kv_len,
                "q_offset": problem.offset,
                "heads": problem.heads,
                "block": list(made.block),
            }
        )
    else:
        print(made.pattern)


def _array(file: Path) -> np.ndarray:
    from ..reading import mask_in

    try:
        return mask_in(file.read_bytes())
    except StudioError as error:
        raise StudioError(f"{file}: {error}") from None
