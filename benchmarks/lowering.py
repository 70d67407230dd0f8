"""`python -m benchmarks.lowering`: time and memory of lowering at a million tokens, and torch's create_block_mask."""

from __future__ import annotations

import argparse
import gc
import json
import time
import tracemalloc
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import torch
from torch.nn.attention.flex_attention import create_block_mask

import pattern_studio as ps

from .figure import log_log
from .where import stamp

MILLION = 2**20
VIDEO = "grid(t=64, h=128, w=128)"
WINDOW = "causal & (window(4095, 0) | sink(64))"


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
    Case("window and sink", WINDOW, seconds=1, megabytes=500),
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
LENGTHS = tuple(4096 << n for n in range(9))
# Eager, torch's working arrays grow with the square of the length, compiled its time does.
TORCH_LENGTHS = {"eager": (4096, 8192, 16384), "compiled": (4096, 8192, 16384, 32768, 65536)}


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
    if options.only in "create_block_mask":
        lines: dict[str, list[tuple[float, float]]] = {}
        for row in by_length():
            rows.append(row)
            print(line(row), flush=True)
            lines.setdefault(row["case"].split(" at ")[0], []).append((row["length"], row["rows_s"]))
    machine = stamp(torch.device("cpu"))
    out = options.out or Path(__file__).parent / "results" / f"{machine['date']}-lowering.json"
    out.parent.mkdir(exist_ok=True)
    out.write_text(json.dumps({"machine": machine, "rows": rows}, indent=1) + "\n")
    if options.only in "create_block_mask":
        figure = log_log(f"Lowering {WINDOW}, block 128", "tokens", "seconds", lines)
        out.with_suffix(".svg").write_text(figure)


def by_length() -> Iterator[dict]:
    """Ours and torch's at rising lengths; torch's in a process of its own, whose memory is its peak."""
    for length in LENGTHS:
        yield measured(Case(f"ours at {length}", WINDOW, length=length))
    with ProcessPoolExecutor(1, mp_context=get_context("spawn"), max_tasks_per_child=1) as pool:
        for way, lengths in TORCH_LENGTHS.items():
            for length in lengths:
                yield pool.submit(block_mask, length, way == "compiled").result()


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


def block_mask(length: int, compiled: bool) -> dict:
    """torch's way: every pair is evaluated. Its "runs" are active tiles; run in a fresh process, for its memory."""

    def mask_mod(b, h, q, k):
        return (q >= k) & ((q - k <= 4095) | (k < 64))

    def made():
        return make(mask_mod, None, None, length, length, device="cpu", BLOCK_SIZE=128)

    make = create_block_mask
    if compiled:
        make = torch.compile(create_block_mask)
        made()  # compiling is not what is measured
    before = high_water()  # of compiling too: then the peak says nothing
    begin, begin_cpu = time.perf_counter(), time.process_time()
    mask = made()
    rows, rows_cpu = time.perf_counter() - begin, time.process_time() - begin_cpu
    peak = (high_water() - before) / 1e6
    blocks = sum(int(n.sum()) for n in (mask.kv_num_blocks, mask.full_kv_num_blocks) if n is not None)
    assert blocks == ps.lower(ps.parse(WINDOW), q_len=length, block=128).tiles()
    return {
        "case": f"create_block_mask, {'compiled' if compiled else 'eager'} at {length}",
        "pattern": WINDOW,
        "length": length,
        "block": 128,
        "rows_s": rows,
        "rows_cpu_s": rows_cpu,
        "transpose_s": None,
        "peak_mb": None if compiled else peak,
        "runs": blocks,
        "masks": None,
    }


def high_water() -> int:
    """Bytes of this program's own peak; ru_maxrss would start at that of the process that started it (Linux)."""
    return int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]) * 1024


def line(row: dict) -> str:
    """One line of the table."""
    block = "x".join(map(str, row["block"])) if isinstance(row["block"], tuple) else str(row["block"])
    transpose = "" if row["transpose_s"] is None else f"{row['transpose_s']:.2f}"
    peak = "" if row["peak_mb"] is None else f"{row['peak_mb']:.0f}"
    return (
        f"{row['case']:30} {row['length']:9} {block:>6} {row['rows_s']:7.2f} {row['rows_cpu_s']:7.2f} {transpose:>11} "
        f"{peak:>8} {row['runs']:9}"
    )


if __name__ == "__main__":
    main()
