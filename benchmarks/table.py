"""`python -m benchmarks.table FILE`: the README's table of a run's results: milliseconds and ratios, as Markdown."""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Iterable
from pathlib import Path

ARMS = {
    "hopper": "ours, Hopper",
    "ours": "ours, portable",
    "flex": "FlexAttention, compiled",
    "fa4": "FlashAttention-4, block-sparse",
    "cudnn_bsa": "cuDNN block-sparse",
}
RATIOS = ("fa4", "flex")  # whose time is set against the first arm's
Cell = tuple[int, int, str, str]


def times(rows: Iterable[dict]) -> dict[Cell, dict[tuple[str, str], float]]:
    """Milliseconds by arm and pass of each cell, which is head dim, length, block and pattern."""
    found: dict[Cell, dict[tuple[str, str], float]] = {}
    for row in rows:
        shape = row["shape"]
        cell = shape["D"], shape["S"], "x".join(map(str, shape["block"])), row["pattern"]
        found.setdefault(cell, {})[row["arm"], row["pass"]] = row["ms"]
    return found


def table(rows: Iterable[dict]) -> str:
    """A line a cell: forward / backward of each arm in ms, and how many times as fast our first arm is, cut.

    A ratio is not rounded, as 1.00 for .998 would say what was not measured.

    >>> shape = {"D": 64, "S": 8192, "block": [128, 128]}
    >>> told = {"shape": shape, "pattern": "random_0.10", "pass": "forward"}
    >>> print(table([told | {"arm": "hopper", "ms": 1.0}, told | {"arm": "flex", "ms": 1.5}]))
    | D | S | pattern | ours, Hopper | FlexAttention, compiled | times FlexAttention |
    |---|---|---|---|---|---|
    | 64 | 8K | random_0.10 | 1.00 / - | 1.50 / - | 1.50 / - |
    """
    cells = {cell: ms for cell, ms in times(rows).items() if ("hopper", "forward") in ms}
    arms = [arm for arm in ARMS if any((arm, "forward") in ms for ms in cells.values())]
    ratios = [arm for arm in RATIOS if arm in arms]
    blocks = len({block for _, _, block, _ in cells}) > 1
    head = ["D", "S", *["block"] * blocks, "pattern", *map(ARMS.get, arms)]
    lines = [[*head, *(f"times {ARMS[arm].split(',')[0]}" for arm in ratios)]]
    lines.append(["---"] * len(lines[0]))
    for (dim, length, block, pattern), ms in cells.items():
        line = [f"{dim}", f"{length // 1024}K", *[block] * blocks, pattern]
        line += [_pair(ms.get((arm, "forward")), ms.get((arm, "backward"))) for arm in arms]
        line += [_pair(*(_ratio(ms, arm, kind) for kind in ("forward", "backward"))) for arm in ratios]
        lines.append(line)
    text = "\n".join("| " + " | ".join(line) + " |" for line in lines)
    return text.replace("| --- ", "|---").replace("--- |", "---|")


def _ratio(ms: dict[tuple[str, str], float], arm: str, kind: str) -> float | None:
    ours, theirs = ms.get(("hopper", kind)), ms.get((arm, kind))
    return math.floor(theirs / ours * 100) / 100 if ours and theirs else None


def _pair(forward: float | None, backward: float | None) -> str:
    return " / ".join("-" if x is None else f"{x:.2f}" for x in (forward, backward))


def main() -> None:
    """Print the table of one file or several."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", type=Path, nargs="+")
    print(table([row for file in parser.parse_args().files for row in json.loads(file.read_text())["rows"]]))


if __name__ == "__main__":
    main()
