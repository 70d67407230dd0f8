"""`python -m benchmarks.hopper_variants DIR`: the Hopper kernels and their variants on a card.

Every cell of hopper_cells.py against float64, with dropout and without, while each variant of the programs is compiled
beside it; then the variants timed beside the portable kernels, each case in a process of its own with a time limit, so
that one that hangs or fails costs no other. DIR/results.json has
everything, in the form of benchmarks/results and with the text of each failure.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch
import triton
from torch import Tensor
from triton.testing import do_bench

import pattern_studio as ps
from attention_core import plan
from attention_core.kernels.hopper import launch, launch_backward, serves
from attention_core.kernels.triton import launch as portable

from .cases import Case, as_full, global_local, local, random
from .hopper_cells import CELLS, claiming, errors, limit

# What is changed of the default forward, and of the backward that adds dQ up; an empty change is the default.
FORWARD: dict[str, dict] = {"": {}, "by stride": {"claimed_from": 1 << 30}}
BACKWARD: dict[str, dict] = {"": {}}
BACKWARD_64: dict[str, dict] = {"V in memory": {"v_in_registers": False}}
# Case, length, keys of a block; most telling first.
TIMED = (
    ("random_0.10", 32768, 128),
    ("local_0.05", 32768, 128),
    ("global_local_0.05", 32768, 128),
    ("random_0.02", 32768, 128),
    ("window_sinks", 32768, 128),
    ("window_sinks_as_full", 32768, 128),
    ("causal_window_1023", 32768, 128),
    ("causal_window_1023_as_full", 32768, 128),
    ("random_0.10", 32768, 8),
    ("random_0.05", 32768, 128),
    ("random_0.10", 8192, 128),
    ("local_0.05", 8192, 128),
    ("random_0.02", 8192, 128),
    ("random_0.10_gqa8", 32768, 128),
)


def main() -> None:
    """Run all jobs, or with --job one of them, as a child does."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, nargs="?", default=Path())
    parser.add_argument("--job", help="for children: one job as JSON, whose result is printed as JSON")
    parser.add_argument("--minutes", type=float, default=8.5, help="no job is started after this")
    parser.add_argument("--limit", type=float, default=150, help="seconds that one job may take")
    parser.add_argument("--only", default="", help="only jobs in whose names this regular expression is found")
    parser.add_argument("--skip", default="^$", help="no jobs in whose names this is found, such as cell or dropout")
    options = parser.parse_args()
    if options.job:
        print(json.dumps(_work(json.loads(options.job))))
        return
    end = time.monotonic() + 60 * options.minutes
    options.folder.mkdir(parents=True, exist_ok=True)
    environment = os.environ | {"TRITON_CACHE_DIR": str(options.folder.resolve() / "triton")}
    done: list[dict] = []

    def run(job: dict) -> None:
        left = end - time.monotonic()
        if left > 5:
            done.append(job | _child(job, environment, min(options.limit, left)))
            print(_line(done[-1]), flush=True)
            stamp = {"torch": torch.__version__, "triton": triton.__version__, "date": str(datetime.date.today())}
            text = json.dumps({"rows": [stamp | row for row in done]}, indent=1)
            (options.folder / "results.json").write_text(text)

    jobs = [job for job in _jobs() if re.search(options.only, job["name"]) and not re.search(options.skip, job["name"])]
    with ThreadPoolExecutor(min(14, os.cpu_count() or 1)) as pool:  # correctness and compiling may share the card
        list(pool.map(run, [job for job in jobs if job["kind"] != "time"]))
    for job in jobs:  # times may not
        if job["kind"] == "time":
            run(job)
    print(f"\n{len(done)} of {len(jobs)} jobs run; failed:")
    print("\n".join(_line(row) for row in done if not row["ok"]) or "none")


def _jobs() -> list[dict]:
    # Every variant compiles two programs or more, minutes in all: they are run once, side by side, before any is timed.
    warm = [
        {"kind": "warm", "name": f"warm_{case}_D{dim}_{name.replace(' ', '_')}", "pattern": case, "length": 4096,
         "dim": dim, "block_k": block_k, "variant": name}
        for case, block_k in (("random_0.10", 128), ("causal_window_1023", 128), ("window_sinks", 128))
        for dim in (128, 64)
        for name in FORWARD | BACKWARD | (BACKWARD_64 if dim == 64 else {}) | {"seven products": {}}
    ] + [
        {"kind": "warm", "name": f"warm_runs_D{dim}", "pattern": "random_0.10", "length": 4096, "dim": dim,
         "block_k": 8}
        for dim in (128, 64)
    ]  # fmt: skip
    cells = [
        {"kind": "cell", "name": f"cell_{name}_{dim}{'_dropout' * (p > 0)}", "cell": name, "dim": dim, "dropout_p": p}
        for p in (0.0, 0.3)
        for dim in (128, 64)
        for name in CELLS
    ]
    times = [
        {"kind": "time", "name": f"{case}_S{length}_D{dim}_{block_k}", "pattern": case, "length": length, "dim": dim,
         "block_k": block_k}
        for case, length, block_k in TIMED
        for dim in (128, 64)
    ]  # fmt: skip
    return warm + cells + times


def _case(name: str, length: int, dim: int, block_k: int) -> Case:
    """One cell of the benchmark's grid, made alone: the whole grid takes seconds of the lent time."""
    window, sinks = ps.causal & ps.window(1023, 0), ps.causal & (ps.window(4095, 0) | ps.sink(64))
    kind, _, density = name.removesuffix("_gqa8").rpartition("_")
    makers: dict[str, Callable[[], ps.Pattern]] = {
        "random": lambda: random(float(density), length, 16, 128, block_k),
        "local": lambda: local(float(density), length, 128),
        "global_local": lambda: global_local(float(density), length, 128),
        "causal_window": lambda: window,
        "causal_window_1023_as": lambda: as_full(window, length),
        "window": lambda: sinks,
        "window_sinks_as": lambda: as_full(sinks, length),
    }
    return Case(name, length, 16, 2 if name.endswith("_gqa8") else 16, dim, (128, block_k), makers[kind]())


def _child(job: dict, environment: dict, seconds: float) -> dict:
    """The result of a job in a process of its own, which is ended with all that it started when its time is up."""
    command = [sys.executable, "-m", "benchmarks.hopper_variants", "--job", json.dumps(job)]
    child = subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        out, err = child.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, signal.SIGKILL)
        child.communicate()
        return {"ok": False, "error": f"no end after {seconds:.0f} s: a hang, or a slow compiler"}
    if child.returncode:
        return {"ok": False, "error": err[-4000:]}
    return json.loads(out.splitlines()[-1])


def _work(job: dict) -> dict:
    return _compare(job) if job["kind"] == "cell" else _time(job)


def _compare(job: dict) -> dict:
    """Errors of one cell in each dtype that it has: entries by stride and seven products, or claimed and five."""
    found, p = {}, job["dropout_p"]
    ways = {"": False} | ({} if p else {" adding": True})  # the program that adds has no dropout
    for dtype in CELLS[job["cell"]].halves:
        for name, way in ways.items():
            with claiming(way):
                told = errors(job["cell"], "hopper", dtype, job["dim"], dropout_p=p, deterministic=not way)
            found[f"{str(dtype).removeprefix('torch.')}{name}"] = told | {
                "ok": all(error <= limit(part, dtype) for part, error in told.items())
            }
    return {"ok": all(x["ok"] for x in found.values()), "errors": found}


def _time(job: dict) -> dict:
    """Median ms of both passes of the portable kernels and of each variant, on one case, in one process.

    A warm job runs its one variant (or without a name all) and times nothing.
    """
    case = _case(job["pattern"], job["length"], job["dim"], job["block_k"])
    layout, dim = case.layout(), case.dim
    ready, scale = plan(layout, device="cuda"), dim**-0.5
    generator = torch.Generator("cuda").manual_seed(0)
    q, k, v, dout = (
        torch.randn(case.batch, h, case.length, dim, device="cuda", dtype=torch.bfloat16, generator=generator)
        for h in (case.heads, case.kv_heads, case.kv_heads, case.heads)
    )
    by_query = ready.by_query
    wanted = portable.attention_forward(q, k, v, by_query, scale)
    work: dict[tuple[str, str, str], Callable] = {
        ("triton", "forward", ""): lambda: portable.attention_forward(q, k, v, by_query, scale)
    }
    for name, change in FORWARD.items():
        variant = replace(launch.forward_variant(dim, torch.bfloat16), **change)
        work["hopper", "forward", name] = partial(launch.attention_forward, q, k, v, by_query, scale, variant)
    exact: tuple = ()
    if serves.unserved_backward(case.block, by_key=True) is None:
        rest = *wanted, dout, None, by_query, ready.by_key, scale
        exact = portable.attention_backward(q, k, v, *rest)
        work["triton", "backward", ""] = lambda: portable.attention_backward(q, k, v, *rest)
        work["hopper", "backward", "seven products"] = partial(launch_backward.attention_backward, q, k, v, *rest, True)
        for name, change in (BACKWARD | (BACKWARD_64 if dim == 64 else {})).items():
            shapes = None, replace(launch_backward.adding_shape(dim), **change)
            work["hopper", "backward", name or "five products"] = partial(
                launch_backward.attention_backward, q, k, v, *rest, False, shapes
            )
    rows = []
    warm, only = job["kind"] == "warm", job.get("variant")
    for (arm, kind, name), run in work.items():
        if only is not None and name not in (only, only or "five products"):
            continue
        row = {"arm": arm, "pass": kind, "variant": name}
        try:
            found = run()
            error = _apart(found, wanted if kind == "forward" else exact)
            if not warm:
                time.sleep(0.3)  # the card slows down under load: let it cool
            ms = float("inf") if warm else do_bench(run, warmup=30, rep=120, return_mode="median")
        except (RuntimeError, triton.TritonError, triton.OutOfResources) as failed:  # the next variant may do
            rows.append(row | {"ok": False, "error": str(failed)[:300]})
            continue
        products = 4 if kind == "forward" else 10
        # Two half-precision programs: a few roundings apart. A lost tile moves more; float64 decides in the cells.
        rows.append(row | {"ok": error < 2e-2, "error_to_triton": error, "ms": ms,
                           "tflops": products * dim * case.batch * layout.tile_pairs / ms / 1e9})  # fmt: skip
    return {"ok": all(row["ok"] for row in rows), "card": torch.cuda.get_device_name(), "times": rows}


def _apart(found: tuple[Tensor, ...], wanted: tuple[Tensor, ...]) -> float:
    pairs = zip(found, wanted, strict=True)
    return max(float((a.double() - b.double()).norm() / b.double().norm()) for a, b in pairs)


def _line(row: dict) -> str:
    told = f"{'ok ' if row['ok'] else 'BAD'} {row['name']:48}"
    if "times" in row:
        for t in row["times"]:
            value = f"{t['ms']:.3f} ms {t['tflops']:.0f}" if "ms" in t else t["error"].splitlines()[0][:60]
            told += f"\n    {'' if t['ok'] else 'BAD '}{t['arm']} {t['pass']} {t['variant']:40} {value}"
    elif "errors" in row:
        told += "  ".join(f"{d} " + " ".join(f"{k} {v:.1e}" for k, v in e.items() if k != "ok")
                          for d, e in row["errors"].items() if not row["ok"])  # fmt: skip
    if "error" in row:
        told += row["error"].strip().splitlines()[-1][:150]
    return told


if __name__ == "__main__":
    main()
