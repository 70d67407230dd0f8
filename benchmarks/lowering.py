"""`python -m benchmarks.lowering`: time and memory of lowering at a million tokens, and torch's create_block_mask."""

from __future__ import annotations

import argparse
import datetime
import gc
import json
import os
import platform
import time
import tracemalloc
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch.nn.attention.flex_attention import create_block_mask

import pattern_studio as ps

MILLION = 2**20
VIDEO = "grid(t=64, h=128, w=128)"


@dataclass(frozen=True)
class Case:
    """One line of the table; `seconds` and `megabytes` are what it is meant to stay below, where that is set."""

    name: str
    text: str
    length: int = MILLION
    block: int | tuple[int, int] = 128
    seconds: float = 10
    megabytes: float | None = None


CASES = (
    Case("window and sink", "causal & (window(4095, 0) | sink(64))", seconds=1, megabytes=500),
    Case("A20", "causal & (window(511, 0) | sink(64))", length=96_000, seconds=0.2, megabytes=200),
    Case("dilated", "causal & dilated(511, 0, rate=7)"),
    Case("strided", "causal & (strided(1024) | window(127, 0))"),
    Case("10,000 documents", "causal & docs"),
    Case("within documents", "(causal & (window(255, 0) | sink(4))).within(docs)"),
    Case("random blocks", "window(127, 127) | random(3, unit=block)"),
    Case("random keys", "random(8)", block=(128, 1)),
    Case("random keys, causal", "causal & random(8)", block=(128, 1)),
    Case("expander", "expander(8)", block=(128, 1)),
    Case("neighborhood 3-D", f"neighborhood({VIDEO}, kernel=(8, 9, 9))"),
    Case("neighborhood 3-D, odd rows", "neighborhood(grid(t=672, h=30, w=52), kernel=(8, 9, 9))"),
    Case("neighborhood 3-D, Morton", "neighborhood(grid(t=64, h=128, w=128, morton=True), kernel=(8, 9, 9))"),
    Case("neighborhood 3-D, transposed", f"neighborhood({VIDEO}, kernel=(8, 9, 9)).T"),
    Case("not a neighborhood", f"causal - neighborhood({VIDEO}, kernel=(8, 9, 9))"),
    Case("sliding tiles", "sliding_tile(64, 128, 128, tile=(4, 8, 8))"),
    Case("axial 3-D", f"axial({VIDEO})"),
    Case("longnet", "longnet((2048, 4096, 8192, 16384, 32768), (1, 2, 4, 6, 12))"),
    Case("slash", "causal & slash(range(0, 8192, 512))"),
    Case("hierarchical", "causal & hierarchical(((128, 1), (1024, 8), (8192, 64)))"),
    Case("radial", "radial_video(4096)"),
    Case("three kinds of heads", "heads({0: mistral(), 1: causal & strided(8192), 2: causal - random(3, unit=128)})"),
)
HEAD = (
    f"{'case':30} {'length':>9} {'block':>6} {'rows s':>7} {'cpu s':>7} {'transpose s':>11} {'peak MB':>8} {'runs':>9}"
)
TORCH_LENGTHS = (4096, 8192, 16384)  # its working arrays grow with the square: 1 GB and more at 16,384


def main() -> None:
    """Print a table and write benchmarks/results/<date>-lowering.json."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="only cases whose name contains this")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    rows = []
    print(HEAD)
    for case in CASES:
        if options.only in case.name:
            rows.append(measured(case))
            print(line(rows[-1]), flush=True)
    for length in TORCH_LENGTHS if options.only in "create_block_mask" else ():
        ours = Case(f"ours at {length}", "causal & (window(4095, 0) | sink(64))", length=length)
        for row in (measured(ours), block_mask(length)):
            rows.append(row)
            print(line(row), flush=True)
    stamp = {
        "cpu": cpu(),
        "cores": len(os.sched_getaffinity(0)),
        "load": os.getloadavg()[0],
        "python": platform.python_version(),
        "numpy": np.__version__,
        "torch": torch.__version__,
        "pattern_studio": ps.__version__,
        "date": datetime.date.today().isoformat(),
    }
    out = options.out or Path(__file__).parent / "results" / f"{stamp['date']}-lowering.json"
    out.parent.mkdir(exist_ok=True)
    out.write_text(json.dumps({"machine": stamp, "rows": rows}, indent=1) + "\n")


def measured(case: Case) -> dict:
    """Times without, then the peak with memory tracing, which slows things down."""
    pattern = ps.parse(case.text)
    docs = documents(case.length, 10_000) if "docs" in case.text else None
    problem = ps.Problem(case.length, heads=3 if case.text.startswith("heads") else 1, docs=docs)
    begin, begin_cpu = time.perf_counter(), time.process_time()
    layout = ps.lower(pattern, problem, block=case.block)
    rows, rows_cpu = time.perf_counter() - begin, time.process_time() - begin_cpu
    begin = time.perf_counter()
    assert len(layout.columns.start)
    transpose = time.perf_counter() - begin
    runs, masks = len(layout.rows.start), len(layout.bits)
    del layout
    gc.collect()
    tracemalloc.start()
    ps.lower(pattern, problem, block=case.block)
    peak = tracemalloc.get_traced_memory()[1] / 1e6
    tracemalloc.stop()
    if peak > (case.megabytes or peak) or rows > case.seconds:
        print(f"{case.name} misses its mark of {case.seconds} s, {case.megabytes or 'any'} MB")
    return {
        "case": case.name,
        "pattern": case.text,
        "length": case.length,
        "block": case.block,
        "rows_s": rows,
        "rows_cpu_s": rows_cpu,
        "transpose_s": transpose,
        "peak_mb": peak,
        "runs": runs,
        "masks": masks,
    }


def documents(length: int, count: int) -> tuple[int, ...]:
    """Lengths of documents that end anywhere."""
    cuts = np.sort(np.random.default_rng(0).choice(np.arange(1, length), count - 1, replace=False))
    return tuple(np.diff([0, *cuts.tolist(), length]).tolist())


def block_mask(length: int) -> dict:
    """torch's way, eager: the whole token mask first.

    Its memory is torch's own and not traced, so the mask's size stands for it; its "runs" are active tiles.
    """
    pattern = "causal & (window(4095, 0) | sink(64))"

    def mask_mod(b, h, q, k):
        return (q >= k) & ((q - k <= 4095) | (k < 64))

    begin, begin_cpu = time.perf_counter(), time.process_time()
    mask = create_block_mask(mask_mod, None, None, length, length, device="cpu", BLOCK_SIZE=128)
    rows, rows_cpu = time.perf_counter() - begin, time.process_time() - begin_cpu
    blocks = sum(int(n.sum()) for n in (mask.kv_num_blocks, mask.full_kv_num_blocks) if n is not None)
    assert blocks == ps.lower(ps.parse(pattern), q_len=length, block=128).tiles()
    return {
        "case": f"create_block_mask at {length}",
        "pattern": pattern,
        "length": length,
        "block": 128,
        "rows_s": rows,
        "rows_cpu_s": rows_cpu,
        "transpose_s": None,
        "peak_mb": length * length / 1e6,
        "runs": blocks,
        "masks": None,
    }


def line(row: dict) -> str:
    """One line of the table."""
    block = "x".join(map(str, row["block"])) if isinstance(row["block"], tuple) else str(row["block"])
    transpose = "" if row["transpose_s"] is None else f"{row['transpose_s']:.2f}"
    return (
        f"{row['case']:30} {row['length']:9} {block:>6} {row['rows_s']:7.2f} {row['rows_cpu_s']:7.2f} {transpose:>11} "
        f"{row['peak_mb']:8.0f} {row['runs']:9}"
    )


def cpu() -> str:
    """The processor's model name."""
    for told in Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else ():
        if told.startswith("model name"):
            return told.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


if __name__ == "__main__":
    main()
