"""`python -m benchmarks.run`: every arm on every cell in one process, correctness first, JSON after each cell.

Passes of a row: `forward` and `backward` are the card's own time, with the host far enough ahead ("clock": "card";
in rows without that key they are single calls after a synchronisation, host included); `end_to_end` is a
forward and a backward by the clock between two synchronisations, host and all; `end_to_end_one_thread` is the same with
autograd kept in the caller's thread (torch.autograd.set_multithreading_enabled), without the hand-over to a thread of
the card's and back that every arm else pays; `plan` is what this project's plan costs when made on the card from a
block mask, by the clock. Medians, arms interleaved, inputs rotated.
"""

from __future__ import annotations

import argparse
import datetime
import json
import statistics
import time
from functools import partial
from pathlib import Path

import torch
import triton
from torch import Tensor

import pattern_studio as ps

from .arms import ARMS
from .cases import Case, grid, tile_counts

# Floating-point operations a pair and dim.
PRODUCTS = {"forward": 4, "backward": 10, "end_to_end": 14, "end_to_end_one_thread": 14, "plan": 0}
AHEAD = 4_000_000  # clock cycles, about 2 ms, by which the card is held up so that the host gets ahead of it
OURS = ("ours", "hopper", "hopper_deterministic")
DENSE = ("fa4_dense", "sdpa_cudnn", "sdpa_flash")


def main() -> None:
    """Run the grid and write benchmarks/results/<date>-<card>.json."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="only the cells of the table in the README")
    parser.add_argument("--rest", action="store_true", help="only the other cells")
    parser.add_argument("--arms", default=",".join(ARMS), help="comma-separated")
    parser.add_argument("--only", default="", help="only cells whose name contains this")
    parser.add_argument("--dim", type=int, help="only this head dim")
    parser.add_argument("--repeats", type=int, default=11)
    parser.add_argument("--minutes", type=float, default=60, help="no cell is begun after this; what was run is kept")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    rows: list[dict] = []
    dense_done: set[tuple] = set()
    card = torch.cuda.get_device_name()
    stamp = {
        "card": card,
        "torch": torch.__version__,
        "triton": triton.__version__,
        "date": datetime.date.today().isoformat(),
    }
    out = options.out or Path(__file__).parent / "results" / f"{stamp['date']}-{card.replace(' ', '-')}.json"
    out.parent.mkdir(exist_ok=True)
    end = time.monotonic() + 60 * options.minutes
    cells = grid(options.quick)
    if options.rest:
        done = {(c.name, c.length, c.dim, c.block, c.kv_heads) for c in grid(quick=True)}
        cells = [c for c in cells if (c.name, c.length, c.dim, c.block, c.kv_heads) not in done]
    for case in cells:
        if time.monotonic() > end:
            print("time is up: the cells that are left are not run", flush=True)
            break
        if options.only not in case.name or options.dim not in (None, case.dim):
            continue
        rows += run_case(case, options.arms.split(","), options.repeats, dense_done)
        out.write_text(json.dumps({"rows": [stamp | row for row in rows]}, indent=1))


def run_case(case: Case, arms: list[str], repeats: int, dense_done: set[tuple]) -> list[dict]:
    """Time all arms on one cell, interleaved; an arm that is wrong or can't serve is reported, not timed."""
    layout = case.layout()
    density = layout.tiles() / (layout.q_blocks * layout.kv_blocks * case.heads)
    inputs = [_inputs(case, seed) for seed in range(2)]  # rotated, so that nothing is warm in cache by chance
    runs: dict[str, tuple] = {}
    for name in arms:
        shape = (case.length, case.dim, case.kv_heads, str(case.pattern) == "causal")
        if (name in DENSE and (name, shape) in dense_done) or name not in (case.arms or arms):
            continue
        try:
            run = ARMS[name](case, layout)
            out = run(*inputs[0])
            if name not in DENSE or str(case.pattern) == "causal":
                _gate(name, case, layout, inputs[0], out)
            out.backward(torch.randn_like(out))
        except Exception as error:
            # A peer may refuse a cell by any error of its own, and is then not timed. Ours may refuse, not fail.
            if name in OURS and not isinstance(error, ps.StudioError):
                raise
            print(f"{case.name:28} S{case.length} D{case.dim} {name}: {str(error).splitlines()[0][:90]}", flush=True)
            continue
        if name in DENSE:
            dense_done.add((name, shape))
        runs[name] = run, {kind: [] for kind in PRODUCTS if kind != "plan"}
    for turn in range(repeats):
        inputs_now = inputs[turn % 2]
        for run, times in runs.values():
            for kind, ms in _times(run, inputs_now).items():
                times[kind].append(ms)
    if "ours" in runs and not case.arms:
        runs["ours"][1]["plan"] = _plan_times(case, layout, repeats)
    rows = []
    shape = {
        "B": case.batch, "H": case.heads, "Hkv": case.kv_heads, "S": case.length, "D": case.dim,
        "block": list(case.block),
    }  # fmt: skip
    identity, tiles = case.identity(), {"tiles": tile_counts(layout)}
    for name, (_, times) in runs.items():
        everything = name in DENSE and str(case.pattern) != "causal"  # ran without a pattern, so the row names none
        all_pairs = case.length**2 * case.heads / (2 if str(case.pattern) == "causal" else 1)
        pairs = all_pairs if name in DENSE else layout.tile_pairs
        for kind, taken in times.items():
            if not taken:
                continue
            ms = statistics.median(taken)
            rows.append(
                {
                    "shape": shape,
                    "pattern": "dense" if everything else case.name, **({} if everything else identity),
                    "density": 1.0 if name in DENSE else density, **({} if name in DENSE else tiles),
                    "arm": name, "pass": kind,
                    "clock": "card" if kind in ("forward", "backward") else "host", "ms": ms,
                    "tflops": PRODUCTS[kind] * case.dim * case.batch * pairs / ms / 1e9,
                }
            )  # fmt: skip
    told = "  ".join(
        f"{name} " + " ".join(f"{_short(r['pass'])}{r['ms']:.3f}ms/{r['tflops']:.0f}" for r in rows if r["arm"] == name)
        for name in runs
    )
    block = "x".join(map(str, case.block))
    print(f"{case.name:28} S{case.length} D{case.dim} {block} {density:.3f}: {told}", flush=True)
    return rows


def _short(kind: str) -> str:
    """A pass in a line of the console: f, b, e, p, and o for one thread."""
    return "o" if kind == "end_to_end_one_thread" else kind[0]


def _inputs(case: Case, seed: int) -> list[Tensor]:
    generator = torch.Generator("cuda").manual_seed(seed)
    heads = (case.heads, case.kv_heads, case.kv_heads)
    return [
        torch.randn(
            case.batch, h, case.length, case.dim, device="cuda", dtype=torch.bfloat16, generator=generator
        ).requires_grad_()
        for h in heads
    ]


def _gate(name: str, case: Case, layout, inputs: list[Tensor], out: Tensor) -> None:
    """Sampled rows against float64: an arm that computes something else is not timed."""
    q, k, v = (x.detach() for x in inputs)
    for head in (0, case.heads - 1):
        for row in range(64, case.length, case.length // 7):
            mask = torch.from_numpy(layout.expand(head, row, row + 1)).cuda()
            kv = head // (case.heads // case.kv_heads)
            s = (q[0, head, row].double() @ k[0, kv].double().T) / case.dim**0.5
            want = torch.softmax(s.masked_fill(~mask[0], -torch.inf), 0) @ v[0, kv].double()
            error = (out[0, head, row].double() - want).norm() / want.norm()
            if not error < 0.02:
                raise RuntimeError(f"{name} is wrong on {case.name}: head {head} row {row}: error {error:.3f}")


def _times(run, inputs: list[Tensor]) -> dict[str, float]:
    """Milliseconds of one forward and one backward, each on the card alone, and of both by the clock."""
    for x in inputs:
        x.grad = None
    with torch.no_grad():
        forward = _on_card(partial(run, *inputs))
    out = run(*inputs)
    gradient = torch.randn_like(out)
    backward = _on_card(partial(out.backward, gradient))
    for x in inputs:
        x.grad = None
    end_to_end = _by_the_clock(lambda: run(*inputs).backward(gradient))
    for x in inputs:
        x.grad = None
    with torch.autograd.set_multithreading_enabled(False):
        one_thread = _by_the_clock(lambda: run(*inputs).backward(gradient))
    return {
        "forward": forward, "backward": backward, "end_to_end": end_to_end, "end_to_end_one_thread": one_thread,
    }  # fmt: skip


def _plan_times(case: Case, layout: ps.BlockLayout, repeats: int) -> list[float]:
    """Milliseconds of plan_from_mask on the tiles of a cell whose tiles are all full, or nothing."""
    from attention_core import plan_from_mask

    kinds = torch.stack([torch.from_numpy(layout.tile_kinds(h)) for h in range(case.heads)]).cuda()
    if (kinds > ps.TileKind.FULL).any():
        return []
    mask = (kinds == ps.TileKind.FULL)[None]

    def build() -> None:
        ready = plan_from_mask(mask, q_len=case.length, kv_len=case.length, block=case.block)
        _ = ready.by_query, ready.by_key

    build()
    return [_by_the_clock(build) for _ in range(repeats)]


def _on_card(work) -> float:
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    torch.cuda.synchronize()
    torch.cuda._sleep(AHEAD)
    begin.record()
    work()
    end.record()
    torch.cuda.synchronize()
    return begin.elapsed_time(end)


def _by_the_clock(work) -> float:
    torch.cuda.synchronize()
    begin = time.perf_counter()
    work()
    torch.cuda.synchronize()
    return 1000 * (time.perf_counter() - begin)


if __name__ == "__main__":
    main()
