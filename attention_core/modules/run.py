"""run(): find the plan of a call and run it; batch items that differ go in as heads."""

from __future__ import annotations

from functools import lru_cache

import torch
from torch import Tensor

from pattern_studio.problem import Problem

from ..ops import block_sparse_attention
from ..plan import Plan
from .conditions import read_items
from .source import PatternSource
from .stack import MAX_HEADS

_problem = lru_cache(maxsize=1024)(Problem)  # checking the same numbers anew costs 20 us a call


def planned(
    source: PatternSource,
    shape: tuple[int, int, int, int],
    device: torch.device,
    padding: Tensor | None,
    docs: Tensor | None,
    allowed: Tensor | None,
    causal: bool,
    q_offset: int | None,
    extra: int,
) -> tuple[Plan, bool]:
    """The plan of a call of shape (batch, heads, q_len, kv_len), `extra` included, and whether items became heads."""
    batch, heads, q_len, kv_len = shape
    offset = kv_len - extra - q_len if q_offset is None else q_offset
    problem = _problem(q_len, kv_len, offset, heads)
    # A token mask counts rows from 0; where the queries stand there, a causal one can be named.
    items, is_causal = read_items(batch, padding, docs, allowed, may_name=offset == 0)
    made = source.plan(problem, items, causal=causal or is_causal, extra=extra, device=device)
    return made, len(items) > 1


def run(
    source: PatternSource,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    padding: Tensor | None,
    docs: Tensor | None,
    allowed: Tensor | None,
    seed: Tensor | None,
    causal: bool,
    q_offset: int | None,
    extra: int,
    scale: float,
    dropout_p: float,
    backend: str,
    deterministic: bool,
) -> tuple[Tensor, Tensor]:
    """(out, lse) of attend(), without its checks; scale, seed and dtypes are settled."""
    batch = q.shape[0]
    if (
        batch > 1
        and batch * q.shape[1] > MAX_HEADS
        and any(x is not None and len(x) > 1 for x in (padding, docs, allowed))
    ):
        parts = []
        for n, half in enumerate((slice(0, batch // 2), slice(batch // 2, batch))):
            own = [x if x is None or len(x) == 1 else x[half] for x in (padding, docs, allowed)]
            draw = None if seed is None else (seed + n) & 2**63 - 1  # halves don't drop alike
            settings = causal, q_offset, extra, scale, dropout_p, backend, deterministic
            parts.append(run(source, q[half], k[half], v[half], own[0], own[1], own[2], draw, *settings))
        return torch.cat([out for out, _ in parts]), torch.cat([lse for _, lse in parts])
    shape = batch, q.shape[1], q.shape[2], k.shape[2]
    plan, folded = planned(source, shape, q.device, padding, docs, allowed, causal, q_offset, extra)
    return run_plan(plan, folded, q, k, v, scale, dropout_p, seed, backend, deterministic)


def run_plan(
    plan: Plan,
    folded: bool,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    scale: float | None,
    dropout_p: float = 0.0,
    seed: Tensor | None = None,
    backend: str = "auto",
    deterministic: bool = False,
) -> tuple[Tensor, Tensor]:
    """(out, lse) [batch, heads, ...] under a plan, whose heads are, where `folded`, those of all items in turn."""
    batch, heads, q_len, _ = q.shape
    if folded:
        q, k, v = (x.reshape(1, -1, *x.shape[2:]) for x in (q, k, v))
    out, lse = block_sparse_attention(
        q,
        k,
        v,
        plan,
        scale=scale,
        return_lse=True,
        backend=backend,
        deterministic=deterministic,
        dropout_p=dropout_p,
        seed=seed,
    )
    if folded:
        out, lse = out.reshape(batch, heads, q_len, out.shape[3]), lse.reshape(batch, heads, q_len)
    return out, lse
