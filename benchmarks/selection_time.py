"""`python -m benchmarks.selection_time`: what choosing tiles costs, as a share of the attention that runs on them.

Content scores and the gate at 32,768 tokens on a GPU: the score with its top-k, the plan made of the mask, and the
forward pass over it. q, k and v are normal numbers: time does not depend on what is chosen, only on how much. Writes
benchmarks/results/<date>-selection-time-<device>.json. Medians of repeated calls between two synchronisations, what
Python takes included; beside them, by torch's profiler, how many launches a call makes and how long the card is busy
with them, which is what a call adds where the card has work queued. A way that fails is noted and the others go on.
`--only pooled mean_query --blocks 128x128 64x64` times these alone.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from attention_core import block_sparse_attention, plan_from_mask
from pattern_studio import StudioError
from pattern_studio.learned import SCORES, BlockGate, Tiling, choose

from .where import Clock, add_options, device_of, stamp

AIM = 0.10  # of the sparse forward, at most
BLOCKS = ((128, 128), (64, 64), (64, 8))


def median_ms(work: Callable[[], Any], device: torch.device, repeats: int) -> float:
    """Milliseconds of a call, the median; the first two are not counted."""
    times = []
    for _ in range(repeats + 2):
        begin = time.perf_counter()
        work()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        times.append(1e3 * (time.perf_counter() - begin))
    return float(np.median(times[2:]))


def launches(work: Callable[[], Any], device: torch.device) -> tuple[int, float] | tuple[None, None]:
    """Programs, copies and fills that a call starts on the card, and their milliseconds added up; None on a CPU."""
    if device.type != "cuda":
        return None, None
    kinds = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=kinds) as seen:
        work()
        torch.cuda.synchronize(device)
    started = [event for event in seen.events() or () if str(event.device_type).endswith("CUDA")]
    return len(started), sum(event.time_range.elapsed_us() for event in started) / 1e3


def measured(
    name: str,
    score: Callable[..., torch.Tensor],
    tensors: tuple[torch.Tensor, ...],
    tiling: Tiling,
    density: float,
    repeats: int,
) -> dict[str, Any]:
    """One way of choosing at one block: milliseconds of its parts, and choosing as a share of the forward pass."""
    q, k, v = tensors

    def chosen() -> torch.Tensor:
        return choose(score, q, k, tiling, density)

    def planned(mask: torch.Tensor) -> Any:
        return plan_from_mask(mask, q_len=tiling.q_len, kv_len=tiling.kv_len, block=tiling.block, causal=True)

    mask = chosen()
    plan = planned(mask)
    parts: dict[str, Callable[[], Any]] = {
        "choose": chosen,
        "plan": lambda: planned(mask),
        "forward": lambda: block_sparse_attention(q, k, v, plan),
    }
    choice, made, forward = (median_ms(part, q.device, repeats) for part in parts.values())
    started = {part: launches(work, q.device) for part, work in parts.items()}
    busy = {part: ms for part, (_, ms) in started.items()}
    return {
        "way": name,
        "block": list(tiling.block),
        "block_density": float(mask.sum()) / (tiling.counts(0, False)[0] * q.shape[0] * q.shape[1]),
        "choose_ms": choice,
        "plan_ms": made,
        "forward_ms": forward,
        **{f"{part}_launches": count for part, (count, _) in started.items()},
        **{f"{part}_busy_ms": ms for part, ms in busy.items()},
        "share": choice / forward,
        "share_with_plan": (choice + made) / forward,
        "busy_share": busy["choose"] / busy["forward"] if busy["choose"] and busy["forward"] else None,
        "aim": AIM,
        "met": choice / forward < AIM,
    }


def _block(text: str) -> tuple[int, int]:
    """A block as it is written: 128x128."""
    tall, wide = text.split("x")
    return int(tall), int(wide)


def main() -> None:
    """Print a line for each way and block, and write the file anew after each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, default=32768)
    parser.add_argument("--heads", type=int, default=32)
    parser.add_argument("--kv-heads", type=int, default=8)
    parser.add_argument("--dim", type=int, default=128)
    parser.add_argument("--density", type=float, default=0.10)
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--only", nargs="+", choices=[*SCORES, "gate"], help="time these ways alone")
    parser.add_argument("--blocks", nargs="+", type=_block, default=BLOCKS, help="as 128x128; all three unless given")
    parser.add_argument("--out", type=Path)
    add_options(parser)
    options = parser.parse_args()
    clock, device = Clock(options.minutes), device_of(options)
    machine = stamp(device)
    out = options.out or Path(__file__).parent / "results" / f"{machine['date']}-selection-time-{device.type}.json"
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    made = torch.Generator().manual_seed(0)
    q, k, v = (
        torch.randn(1, heads, options.tokens, options.dim, generator=made).to(device, dtype)
        for heads in (options.heads, options.kv_heads, options.kv_heads)
    )
    values: dict[str, Any] = {
        "machine": machine,
        "tokens": options.tokens,
        "heads": options.heads,
        "kv_heads": options.kv_heads,
        "head_dim": options.dim,
        "dtype": str(dtype).removeprefix("torch."),
        "density": options.density,
        "rows": [],
        "failed": [],
    }
    for block in options.blocks:
        tiling = Tiling(options.tokens, options.tokens, block, None, True)
        gate = BlockGate(options.heads, options.kv_heads, options.dim, block).to(device)
        ways: dict[str, Callable[..., torch.Tensor]] = {**SCORES, "gate": lambda q, k, _, gate=gate: gate(q, k)}
        for name, score in ways.items():
            if options.only and name not in options.only:
                continue
            if clock.over:
                print(f"{options.minutes:g} minutes are over: no {name} at {block}", flush=True)
                continue
            try:
                with torch.no_grad():
                    row = measured(name, score, (q, k, v), tiling, options.density, options.repeats)
            except StudioError as error:  # a score that does not serve this block
                print(f"no {name} at {block}: {error}", flush=True)
                continue
            except Exception as error:  # the others are timed first, then it ends the run as a failure
                failed = {"way": name, "block": list(block), "error": f"{type(error).__name__}: {error}"[:500]}
                values["failed"].append(failed)
                print(failed, flush=True)
            else:
                values["rows"].append(row)
                print({key: round(x, 4) if isinstance(x, float) else x for key, x in row.items()}, flush=True)
            out.parent.mkdir(exist_ok=True)
            out.write_text(json.dumps(values, indent=1, allow_nan=False) + "\n")
    if values["failed"]:
        raise SystemExit(f"failed: {', '.join('{way} at {block}'.format_map(row) for row in values['failed'])}")


if __name__ == "__main__":
    main()
