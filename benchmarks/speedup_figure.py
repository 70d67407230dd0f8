"""`python -m benchmarks.speedup_figure FILE --out SVG`: forward speed-up over dense against density, as a picture.

Random tiles of one head dim and length by each arm, beside the fastest dense kernel of the same run and the line
1 / density, on which time would follow density alone. The app's Performance page draws any cells so, with Plotly.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable
from pathlib import Path

from .figure import log_log

SHOWN = {
    "hopper": "ours, Hopper",
    "fa4": "FlashAttention-4",
    "cudnn_bsa": "cuDNN block-sparse",
    "flex": "FlexAttention",
}


def lines(rows: Iterable[dict], dim: int, tokens: int) -> dict[str, list[tuple[float, float]]]:
    """Points (block density in percent, times as fast as dense) of each arm that was timed, densities rising.

    >>> shape = {"D": 128, "S": 4096, "block": [128, 128]}
    >>> told = {"shape": shape, "pass": "forward", "pattern": "random_0.10", "density": 0.1, "arm": "hopper", "ms": 1.0}
    >>> dense = told | {"pattern": "dense", "density": 1.0, "arm": "sdpa_cudnn", "ms": 9.0}
    >>> lines([told, dense], 128, 4096)
    {'1 / density': [(10.0, 10.0)], 'ours, Hopper': [(10.0, 9.0)]}
    """
    mine = [
        row
        for row in rows
        if (row["shape"]["D"], row["shape"]["S"], row["pass"]) == (dim, tokens, "forward")
        and row["shape"]["block"] == [128, 128]
    ]
    dense = min(row["ms"] for row in mine if row["pattern"] == "dense")
    found = {
        name: sorted(
            (round(100 * row["density"], 2), dense / row["ms"])
            for row in mine
            if row["arm"] == arm and row["pattern"].startswith("random_")
        )
        for arm, name in SHOWN.items()
    }
    found = {name: points for name, points in found.items() if points}
    densities = sorted({x for points in found.values() for x, _ in points})
    return {"1 / density": [(x, 100 / x) for x in densities]} | found


def picture(rows: list[dict], dim: int, tokens: int) -> str:
    """The SVG."""
    title = f"Forward, {rows[0]['card']}, D {dim}, {tokens:,} tokens, random tiles"
    return log_log(title, "block density, %", "times as fast as the fastest dense kernel", lines(rows, dim, tokens))


def main() -> None:
    """Write the picture of one file of results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--dim", type=int, default=128)
    parser.add_argument("--tokens", type=int, default=32768)
    options = parser.parse_args()
    rows = json.loads(options.file.read_text())["rows"]
    options.out.write_text(picture(rows, options.dim, options.tokens))


if __name__ == "__main__":
    main()
