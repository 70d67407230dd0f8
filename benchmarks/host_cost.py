"""`python -m benchmarks.host_cost [--out FILE]`: what a call costs on the host, layer by layer, on a CUDA card.

A plan so small that the card waits for the host; 300 calls one after the other, the median of some rounds. Layers:
`launch` (the launch function), `operator` (kernels/*/op.py), `public` (block_sparse_attention), and `graph` (replay of
a captured CUDA graph of the public call, the floor). Beside the times what was counted: launches that went through
Triton's own search for the compiled program, and blocks taken from the allocator, both for each call.
"""

from __future__ import annotations

import argparse
import datetime
import json
import statistics
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import torch
import triton
from torch import Tensor
from triton.runtime.jit import JITFunction

import pattern_studio as ps
from attention_core import Plan, block_sparse_attention, plan

CALLS, ROUNDS = 300, 7
LENGTH, BLOCK, HEADS = 256, 128, 2
BACKENDS = ("triton", "hopper")


def main() -> None:
    """Time all layers of both backends and print, or write, the rows."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, help="write {'rows': [...]} here")
    out = parser.parse_args().out
    rows = [row for backend in BACKENDS for dim in (64, 128) for row in rows_of(backend, dim)]
    for row in rows:
        if "us" in row:
            told = f"{row['us']:7.1f} us, {row['searched']:.2f} searched, {row['allocations']:.2f} allocations"
        else:
            told = row["error"]
        print(f"{row['arm']:7} D{row['shape']['D']:<4} {row['layer']:9} {row['pass']:17} {told}", flush=True)
    if out is not None:
        out.write_text(json.dumps({"rows": rows}, indent=1))


def rows_of(backend: str, dim: int) -> list[dict]:
    """All layers of one backend at one head dim; what it can't serve is a row with the reason."""
    stamp = {
        "card": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "triton": triton.__version__,
        "date": datetime.date.today().isoformat(),
        "arm": backend,
        "shape": {"B": 1, "H": HEADS, "Hkv": HEADS, "S": LENGTH, "D": dim, "block": BLOCK},
        "pattern": "causal",
    }
    ready = plan(ps.lower(ps.causal, q_len=LENGTH, block=BLOCK), device="cuda")
    q, k, v, dout = (
        torch.randn(1, HEADS, LENGTH, dim, device="cuda", dtype=torch.bfloat16, requires_grad=n < 3) for n in range(4)
    )
    rows = []
    for (layer, kind), call in layers(backend, ready, q, k, v, dout).items():
        try:
            rows.append({**stamp, "layer": layer, "pass": kind, **measured(call)})
        except (ps.StudioError, RuntimeError) as error:
            rows.append({**stamp, "layer": layer, "pass": kind, "error": str(error).splitlines()[0]})
    return rows


def layers(
    backend: str, ready: Plan, q: Tensor, k: Tensor, v: Tensor, dout: Tensor
) -> dict[tuple[str, str], Callable[[], object]]:
    """Calls by (layer, pass)."""
    launch = import_module(f"attention_core.kernels.{backend}.launch")
    backward = import_module(
        f"attention_core.kernels.{backend}.{'launch' if backend == 'triton' else 'launch_backward'}"
    )
    operator = import_module(f"attention_core.kernels.{backend}.op")
    lists, scale = (ready.by_query, ready.by_key), q.shape[3] ** -0.5
    a, b, c = (x.detach() for x in (q, k, v))

    def alone() -> object:
        return launch.attention_forward(a, b, c, lists[0], scale)

    def alone_backward() -> object:
        return backward.attention_backward(a, b, c, *alone(), dout, None, *lists, scale)

    def public() -> object:
        return block_sparse_attention(a, b, c, ready, backend=backend)

    def trained(attend: Callable[..., Tensor]) -> Callable[[], object]:
        return lambda: torch.autograd.grad(attend(), (q, k, v), dout)

    def operated() -> Tensor:
        return operator.attention(q, k, v, *lists, scale)[0]

    def published() -> Tensor:
        return block_sparse_attention(q, k, v, ready, backend=backend)

    def replayed() -> object:
        if "graph" not in made:
            made["graph"] = captured(public)
        return made["graph"].replay()

    made: dict[str, torch.cuda.CUDAGraph] = {}
    return {
        ("launch", "forward"): alone,
        ("launch", "forward_backward"): alone_backward,
        ("operator", "forward"): lambda: operator.attention(a, b, c, *lists, scale),
        ("operator", "forward_grad"): operated,
        ("operator", "forward_backward"): trained(operated),
        ("public", "forward"): public,
        ("public", "forward_grad"): published,
        ("public", "forward_backward"): trained(published),
        ("graph", "forward"): replayed,
    }


def captured(call: Callable[[], object]) -> torch.cuda.CUDAGraph:
    """A graph of one call, after calls that compile."""
    call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    return graph


def measured(call: Callable[[], object]) -> dict[str, float]:
    """Microseconds of the host a call, those until the card has ended too, and what was counted."""
    for _ in range(20):
        call()
    host, all_of_it = [], []
    for _ in range(ROUNDS):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for _ in range(CALLS):
            call()
        host.append((time.perf_counter() - begin) / CALLS * 1e6)
        torch.cuda.synchronize()
        all_of_it.append((time.perf_counter() - begin) / CALLS * 1e6)
    return {
        "us": statistics.median(host),
        "us_least": min(host),
        "us_with_card": statistics.median(all_of_it),
        **counted(call),
    }


def counted(call: Callable[[], object], calls: int = 20) -> dict[str, float]:
    """Launches through Triton's own search, and blocks asked of the allocator, for each call."""
    searched = 0
    run = JITFunction.run

    def counting(self, *args, **options):
        nonlocal searched
        searched += 1
        return run(self, *args, **options)

    before = torch.cuda.memory_stats()["allocation.all.allocated"]
    JITFunction.run = counting
    try:
        for _ in range(calls):
            call()
    finally:
        JITFunction.run = run
    taken = torch.cuda.memory_stats()["allocation.all.allocated"] - before
    return {"searched": searched / calls, "allocations": taken / calls}


if __name__ == "__main__":
    main()
