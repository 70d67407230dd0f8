"""cost: the arithmetic and the memory traffic of a pattern, and how long a measured card would take."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from ..errors import StudioError
from ..layout import BlockLayout
from ..problem import whole
from .base import Metric
from .layouts import single_head

if TYPE_CHECKING:
    from .subject import Subject

PRODUCTS = {"forward": 2, "backward": 5}  # matrix products of a tile: q.k and p.v; both again and three more
ITEM = 2  # bytes of a float16 or bfloat16 element, what the kernels take


@dataclass(frozen=True)
class Calibration:
    """`ms = call_ms + flops / (teraflops * 1e9)`, fitted to our own kernels' times by relative least squares.

    `error`, `worst`: of each cell predicted from the others (leave one out), |predicted / measured - 1|, its
    median and largest.
    """

    call_ms: float
    teraflops: float
    error: float
    worst: float


# NVIDIA H100 80GB HBM3, torch 2.11.0, Triton 3.6.0, bfloat16, B1 H16 D128, block 128, 8,192 and 32,768 tokens, block
# densities .016 to .10: ten cells of benchmarks/results/2026-11-28-h100-d128.json; tests/metrics/test_cost.py refits.
CALIBRATED = "NVIDIA H100 80GB HBM3, 2026-11-28, D 128, block 128"
CALIBRATIONS = {
    "forward": Calibration(0.40665, 363.34, 0.074, 0.131),
    "backward": Calibration(1.19773, 430.87, 0.083, 0.154),
}


@dataclass(frozen=True)
class CostFigures:
    """One forward and one backward pass; None where nothing was measured that could say.

    - forward_flops, backward_flops: of the pairs in active tiles, whole tiles as a block kernel computes them.
    - bytes: of the forward pass if every tile loads its keys and values anew; least_bytes if each is loaded once.
    - intensity: forward_flops / bytes, so at least that; None without work.
    - forward_ms, backward_ms: estimates for the card in `card`, each with its relative `error` (median, leave one out).
    - measured_like: whether head dim and block are those of the calibration; if not, the estimate assumes that flops
      cost the same there.
    """

    forward_flops: int
    backward_flops: int
    bytes: int
    least_bytes: int
    intensity: float | None
    forward_ms: float | None
    backward_ms: float | None
    forward_error: float
    backward_error: float
    card: str
    measured_like: bool


def layout_cost(layout: BlockLayout, head_dim: int, kv_heads: int | None = None, batch: int = 1) -> CostFigures:
    """What a layout costs a block-sparse kernel, from its runs alone.

    Args:
        layout: a lowered pattern.
        head_dim: channels of q, k and v.
        kv_heads: key and value heads, by default as many as query heads.
        batch: sequences, which multiply all but the cost of a call.

    Raises:
        StudioError: a size that is none, or KV heads that don't divide the heads.

    Unit: flops (a multiply and an add are two), bytes of 2-byte elements, milliseconds. Source: the roofline
    (Williams et al., "Roofline", CACM 52, 2009) and FlashAttention's count of products (arXiv:2307.08691).

    >>> import pattern_studio as ps
    >>> cost = layout_cost(ps.lower(ps.causal, q_len=256, block=128), head_dim=64)
    >>> cost.forward_flops == 4 * 64 * 3 * 128**2, round(cost.forward_ms, 3), cost.measured_like
    (True, 0.407, False)
    """
    heads = layout.problem.heads
    dim, batch = whole("head_dim", head_dim, 1), whole("batch", batch, 1)
    kv = heads if kv_heads is None else whole("kv_heads", kv_heads, 1)
    if heads % kv:
        raise StudioError(f"expected KV heads that divide the {heads} heads, got {kv}; correct kv_heads")
    rows = layout.rows
    first = rows.start.astype(np.int64) * layout.block[1]
    width = np.minimum(first + rows.length.astype(np.int64) * layout.block[1], layout.problem.kv_len) - first
    loaded = np.zeros(layout.groups, np.int64)  # keys that the group's query blocks load
    np.add.at(loaded, rows.line // max(layout.q_blocks, 1), width)
    own = heads * layout.problem.q_len * (2 * dim * ITEM + 4)  # q in, out and the float32 LSE out
    product = batch * layout.tile_pairs * 2 * dim
    flops = {name: products * product for name, products in PRODUCTS.items()}
    per_key = batch * 2 * dim * ITEM  # a key and its value
    moved = batch * own + int(loaded[layout.head_group].sum()) * per_key
    ms = {name: one.call_ms + flops[name] / (one.teraflops * 1e9) for name, one in CALIBRATIONS.items()}
    return CostFigures(
        flops["forward"],
        flops["backward"],
        moved,
        batch * own + kv * layout.problem.kv_len * per_key,
        flops["forward"] / moved if product else None,
        ms["forward"],
        ms["backward"],
        CALIBRATIONS["forward"].error,
        CALIBRATIONS["backward"].error,
        CALIBRATED,
        layout.block == (128, 128) and dim == 128,
    )


class Cost(Metric):
    """Cost of the pattern's own layout, see `layout_cost`; pairs outside the dense mask cost as much as any.

    Over layers sums, as layers run one after the other. A head alone has no time of its own.

    Key: `cost` (CostFigures).
    """

    def __init__(self, subject: Subject) -> None:
        layer = subject.layer
        self.layout, self.dim, self.kv_heads = subject.layout, layer.head_dim, layer.kv_heads

    def figures(self, heads: slice = slice(None)) -> dict[str, Any]:
        if heads == slice(None):
            return {"cost": layout_cost(self.layout, self.dim, self.kv_heads)}
        one = layout_cost(single_head(self.layout, heads.start), self.dim)
        return {"cost": CostFigures(**{**vars(one), "forward_ms": None, "backward_ms": None})}

    @classmethod
    def over_layers(cls, layers: Sequence[Self]) -> dict[str, Any]:
        each = [part.figures()["cost"] for part in layers]
        total = {
            name: sum(getattr(one, name) for one in each)
            for name in vars(each[0])
            if name.endswith(("_flops", "bytes", "_ms"))
        }
        intensity = total["forward_flops"] / total["bytes"] if total["forward_flops"] else None
        alike = all(one.measured_like for one in each)
        return {"cost": CostFigures(**{**vars(each[0]), **total, "intensity": intensity, "measured_like": alike})}


METRIC = Cost
