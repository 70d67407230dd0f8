"""`python -m benchmarks.long_analysis`: recall, output error, block mass and oracle at length, timed, with peak memory.

131,072 tokens on a GPU where there is one, else 32,768 on the CPU: 8 heads of 64 channels, one layer. q, k and v are
made up (no model was run at this length): normal numbers with a first key that every query likes, so that there is a
sink; time and memory don't depend on the values. Writes benchmarks/results/<date>-long-analysis-<device>.json.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import torch

import pattern_studio as ps
from pattern_studio.capture import Capture, LayerCapture
from pattern_studio.metrics import analyze, block_mass

from .where import stamp

METRICS = ("recall", "output_error", "oracle")
PATTERNS = ("causal & (window(1023, 0) | sink(64))", "causal & (strided(64) | window(127, 0))")


def made_up(tokens: int, heads: int, kv_heads: int, dim: int) -> Capture:
    """A float16 capture of one layer."""

    def tensor(count: int, seed: int) -> torch.Tensor:
        return torch.randn(count, tokens, dim, generator=torch.Generator().manual_seed(seed))

    q, k, v = tensor(heads, 0), tensor(kv_heads, 1), tensor(kv_heads, 2)
    q, k[:, 0] = q + 0.5, 2.0
    return Capture(
        {0: LayerCapture(q.half(), k.half(), v.half())}, "made up", "made up", ("x",) * tokens, dim**-0.5, True
    )


def host_peak() -> int:
    """The most memory that this process has held, in bytes."""
    return int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]) * 1024


def timed(work, device: torch.device) -> tuple[Any, dict[str, float]]:
    """What `work` returns, with its seconds and the GPU's peak."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        torch.cuda.reset_peak_memory_stats(device)
    begin, process = time.perf_counter(), time.process_time()
    result = work()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    told = {"seconds": time.perf_counter() - begin, "cpu_seconds": time.process_time() - process}
    if device.type == "cuda":
        told["gpu_peak_mb"] = torch.cuda.max_memory_allocated(device) / 1e6
    return result, told | {"host_peak_mb": host_peak() / 1e6}


def measured(capture: Capture, text: str, block: tuple[int, int], device: torch.device) -> dict[str, Any]:
    """One pattern: what was found, how long it took and what it held."""
    report, cost = timed(lambda: analyze(ps.parse(text), capture, block=block, metrics=METRICS), device)
    return {
        "pattern": text,
        "block": block,
        "recall": report.recall.mean,
        "output_error": report.output_error.rel_l2,
        "oracle_recall": report.oracle_recall,
        **cost,
    }


def main() -> None:
    """Print a line for each pattern, then for the block mass, and write the file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--tokens", type=int)
    parser.add_argument("--heads", type=int, default=8)
    parser.add_argument("--kv-heads", type=int, default=8)
    parser.add_argument("--dim", type=int, default=64)
    parser.add_argument("--block", type=int, default=128)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    device = torch.device(options.device)
    tokens = options.tokens or (131072 if device.type == "cuda" else 32768)
    machine = stamp(device)
    out = options.out or Path(__file__).parent / "results" / f"{machine['date']}-long-analysis-{device.type}.json"
    capture = made_up(tokens, options.heads, options.kv_heads, options.dim).to(device)
    analyze(ps.causal, made_up(256, 1, 1, options.dim).to(device))  # whatever is loaded on first use
    values = {
        "machine": machine,
        "tokens": tokens,
        "heads": options.heads,
        "kv_heads": options.kv_heads,
        "head_dim": options.dim,
        "metrics": METRICS,
        "block_mass": None,
        "rows": [],
    }

    def write() -> None:
        out.parent.mkdir(exist_ok=True)
        out.write_text(json.dumps(values, indent=1, allow_nan=False) + "\n")

    for text in PATTERNS:
        values["rows"].append(measured(capture, text, (options.block, options.block), device))
        print(values["rows"][-1], flush=True)
        write()
    mass, cost = timed(lambda: block_mass(capture, 0, options.block), device)
    values["block_mass"] = {"shape": mass.shape, **cost}
    print(values["block_mass"], flush=True)
    write()


if __name__ == "__main__":
    main()
