"""What one rank does for a case: shard, check against an oracle, time, and count what it hands to the network."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import Tensor

from attention_core import block_sparse_attention, plan
from attention_core.distributed import DistributedPlan, distributed_block_sparse_attention, distributed_plan

from . import links
from .cases import Case
from .sent import Sent

WINDOWS = 5  # of steps, of which the median counts
# Every part of a half-precision result is rounded by itself, and a ring of four adds up four; what is wrong is off by
# a hundred times as much.
ROUNDED = 4
SAMPLED = 5  # rows of a rank that are held to the oracle
TENSORS = ("q", "k", "v", "d_out")


def whole(case: Case, name: str, device: torch.device, dtype: torch.dtype) -> Tensor:
    """One tensor of the whole sequence, [1, heads, tokens, dim]: the same on every rank."""
    generator = torch.Generator(device).manual_seed(TENSORS.index(name))
    return torch.randn(1, case.heads, case.tokens, case.dim, device=device, dtype=dtype, generator=generator)


def ready(rank: int, ranks: int) -> None:
    """Returns once all ranks have met."""
    dist.barrier()


def equal(rank: int, ranks: int, case: Case) -> dict[str, float] | str:
    """How far the rank's rows of out, dq, dk and dv are from dense attention in float64; a text says what is wrong.

    Errors are relative, in the L2 norm. Wrong is what is off by more than ROUNDED times what one device in the same
    dtype is off by: something else was computed.
    """
    device, dtype = _device(rank)
    layout = case.layout()
    part = distributed_plan(layout, ranks, rank, kv_heads=case.heads, device=device, **case.options())
    places = part.query_positions.to(device)
    full = [whole(case, name, device, dtype) for name in TENSORS]
    exact = _results(
        lambda q, k, v: block_sparse_attention(q, k, v, plan(layout, device=device), backend="reference"),
        [x.double() for x in full],
    )
    one = _results(lambda q, k, v: block_sparse_attention(q, k, v, plan(layout, device=device)), full)
    sharded = _results(
        lambda q, k, v: distributed_block_sparse_attention(q, k, v, part), [x[..., places, :] for x in full]
    )
    errors = {}
    for name, want, alone, got in zip(("out", "dq", "dk", "dv"), exact, one, sharded, strict=True):
        scale = want.norm()
        errors[name] = ((got - want[..., places, :]).norm() / scale).item()
        alone_error = ((alone - want).norm() / scale).item()
        bound = ROUNDED * alone_error + 1e-6
        if not errors[name] <= bound:
            return (
                f"{name} of rank {rank} is off by {errors[name]:.2g}, expected at most {bound:.2g}, "
                f"{ROUNDED} times what one device is off by"
            )
    return errors


def _results(attend: Callable[..., Tensor], full: list[Tensor]) -> list[Tensor]:
    q, k, v = (x.detach().clone().requires_grad_() for x in full[:3])
    out = attend(q, k, v)
    out.backward(full[3])
    return [x.detach().double() for x in (out, q.grad, k.grad, v.grad)]  # type: ignore[union-attr]


def timed(rank: int, ranks: int, case: Case, seconds: float, traced: bool = False) -> dict:
    """Times of this rank in milliseconds, bytes that it handed over, and how far sampled rows are from the oracle.

    `seconds` is about how long a window of steps lasts. With one rank it is attention on one device, which no
    collective slows down. `traced` adds what the card did during a forward pass and a step, one after the other.
    """
    device, dtype = _device(rank)
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
    layout = case.layout()
    part = distributed_plan(layout, ranks, rank, kv_heads=case.heads, device=device, **case.options())
    places = part.query_positions.to(device)
    q, k, v, d_out = (whole(case, name, device, dtype)[..., places, :].contiguous() for name in TENSORS)
    inputs = [x.requires_grad_() for x in (q, k, v)]
    if ranks == 1:
        local = plan(layout, device=device)
        attend = lambda: block_sparse_attention(q, k, v, local)  # noqa: E731
    else:
        attend = lambda: distributed_block_sparse_attention(q, k, v, part)  # noqa: E731

    def forward() -> None:
        with torch.no_grad():
            attend()

    def step() -> None:
        for x in inputs:
            x.grad = None
        attend().backward(d_out)

    error = _sampled_error(case, layout, part, q, attend().detach())
    step()
    found: dict = {"error": error, "checksums": [_checksum(x.grad, places) for x in inputs]}  # type: ignore[arg-type]
    for name, run in (("forward", forward), ("step", step)):
        # A card's backward pass has a thread of its own otherwise, which the count must not miss.
        with torch.autograd.set_multithreading_enabled(False), Sent(rank, ranks) as sent:
            run()
        found[name] = {"handed": sent.bytes} | _windows(run, ranks, rank, device, seconds)
    if traced:
        found["timeline"] = _timeline((forward, step), device)
    found["plan"] = {
        "text": str(part),
        "mode": part.mode if ranks > 1 else "one device", "way": part.needs.way, "imbalance": part.needs.imbalance,
        "counted": int(part.bytes_between(case.dim, case.dim, q.element_size()).sum()) if ranks > 1 else 0,
        "ring": part.needs.ring_keys * 2 * case.dim * q.element_size(),
    }  # fmt: skip
    if device.type == "cuda":
        found["gib"] = torch.cuda.max_memory_allocated() / 2**30
        inputs.clear()
        del q, k, v, d_out, attend, forward, step
        gc.collect()
        torch.cuda.empty_cache()  # a group of another size takes its turn on the same card
    return found


def _timeline(runs: tuple[Callable[[], None], ...], device: torch.device) -> list[dict]:
    """What ran on the card (on the CPU without one), in order: name, and start and length in microseconds."""
    activity = torch.profiler.ProfilerActivity
    with torch.profiler.profile(activities=[activity.CPU, *([activity.CUDA] if device.type == "cuda" else [])]) as seen:
        for run in runs:
            run()
        _settle(device)
    kind = torch.autograd.DeviceType.CUDA if device.type == "cuda" else torch.autograd.DeviceType.CPU
    ran = sorted((x for x in seen.events() if x.device_type == kind), key=lambda x: x.time_range.start)
    zero = ran[0].time_range.start if ran else 0.0
    return [{"name": x.name[:80], "start": x.time_range.start - zero, "us": x.time_range.elapsed_us()} for x in ran]


def _windows(run: Callable[[], None], ranks: int, rank: int, device: torch.device, seconds: float) -> dict:
    """The median over windows of the slowest rank's milliseconds a run, and what NVLink carried a run."""
    first = _slowest(_seconds(run, 1, device), device)
    steps = max(1, min(50, round(seconds / first)))
    reads = ranks > 1 and device.type == "cuda" and rank == 0
    before = links.sent_bytes() if reads else None
    windows = [_slowest(_seconds(run, steps, device), device) / steps for _ in range(WINDOWS)]
    after = links.sent_bytes() if reads else None
    carried = None if before is None or after is None else (after - before) / (steps * WINDOWS)
    return {"ms": 1000 * statistics.median(windows), "steps": steps, "carried": carried}


def _seconds(run: Callable[[], None], steps: int, device: torch.device) -> float:
    dist.barrier()
    _settle(device)
    begin = time.perf_counter()
    for _ in range(steps):
        run()
    _settle(device)
    return time.perf_counter() - begin


def _slowest(seconds: float, device: torch.device) -> float:
    told = torch.tensor(seconds, device=device, dtype=torch.float64)
    dist.all_reduce(told, dist.ReduceOp.MAX)
    return told.item()


def _settle(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


def _sampled_error(case: Case, layout, part: DistributedPlan, q: Tensor, out: Tensor) -> float:
    """The largest relative error of some of the rank's rows against float64, over the first and last head."""
    k, v = (whole(case, name, q.device, q.dtype) for name in ("k", "v"))
    worst = 0.0
    places = part.query_positions
    for local in range(0, len(places), max(1, len(places) // SAMPLED)):
        for head in (0, case.heads - 1):
            row = int(places[local])
            mask = torch.from_numpy(layout.expand(head if case.per_head else 0, row, row + 1))[0].to(q.device)
            s = k[0, head][mask].double() @ q[0, head, local].detach().double() / case.dim**0.5
            want = torch.softmax(s, 0) @ v[0, head][mask].double()
            worst = max(worst, ((out[0, head, local].double() - want).norm() / want.norm()).item())
    limit = 0.02 if q.dtype == torch.bfloat16 else 1e-4
    assert worst < limit, f"{case.name}: a row of rank {part.rank} is off by {worst:.2g}, expected below {limit}"
    return worst


def _checksum(gradient: Tensor, places: Tensor) -> float:
    """A sum over rows that depends on where each stands: summed over ranks it is that of one device."""
    rows = gradient.float().square().sum((0, 1, 3)).double()
    return (rows * (1 + torch.cos(places.double()))).sum().item()


def _device(rank: int) -> tuple[torch.device, torch.dtype]:
    if torch.cuda.is_available():
        return torch.device("cuda", rank), torch.bfloat16
    return torch.device("cpu"), torch.float32
