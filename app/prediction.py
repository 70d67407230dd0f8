"""How long a pattern would take on a card: predicted by the cost model, or found among the measured cells."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pattern_studio import BlockLayout, Pattern
from pattern_studio.metrics import layout_cost
from pattern_studio.metrics.cost import CALIBRATED, PRODUCTS, Calibration

from .timing_file import DIRECTIONS, Timing
from .timings import BOTH, shape_of

MODEL_CARD = CALIBRATED.split(",")[0]  # the card that pattern_studio's cost model was fitted to
OURS = ("hopper", "ours")  # the arms that patterns run on, first the one that `auto` takes where it serves
CELLS = 4  # of different work, that a fit of two numbers needs to be checked by leaving each out


@dataclass(frozen=True)
class Subject:
    """What a time is asked for: a lowered pattern as tensors of one sequence on a card."""

    pattern: Pattern
    layout: BlockLayout
    dim: int
    kv_heads: int
    card: str

    def fits(self, row: Timing) -> bool:
        """Whether a row is of the same card and tensors, whatever the pattern and block."""
        problem = self.layout.problem
        shape = 1, problem.heads, self.kv_heads, problem.kv_len, self.dim
        return row.card == self.card and shape_of(row) == shape and problem.q_len == problem.kv_len

    def is_cell(self, row: Timing) -> bool:
        """Whether a row is a time of exactly this: the same tensors and block, and the pattern by its hash or text."""
        same = row.hash == self.pattern.hash or _bare(row.pattern) == _bare(str(self.pattern))
        return same and row.block == self.layout.block and self.fits(row)


def _bare(text: str) -> str:
    return "".join(text.split())


@dataclass(frozen=True)
class Prediction:
    """An estimate, never a measurement.

    - ms: of the direction; error: of cells that were predicted without themselves, median |predicted / measured - 1|,
      for both directions together that of the worse.
    - basis: what it was fitted to; alike: whether head dim and block are those of its cells.
    - beyond: whether the pattern has less or more work than all cells at hand; None where none is.
    """

    ms: float
    error: float
    basis: str
    alike: bool
    beyond: bool | None


def predicted(subject: Subject, direction: str, rows: Iterable[Timing]) -> Prediction | None:
    """How long our kernels would take; None where the card has too few cells to tell.

    For the card that pattern_studio's cost model was fitted to it is that model's estimate. For another the same two
    numbers, the time of a call and the speed, are fitted to the rows of our kernels on it: of those that `auto` takes
    there, if enough are known of them.
    """
    known = [row for row in rows if row.card == subject.card]
    by_arm = [[row for row in known if row.arm == arm] for arm in OURS]
    ours = next((of for of in by_arm if all(_count(of, one) >= CELLS for one in DIRECTIONS)), by_arm[-1])
    parts = [_predicted(subject, one, ours) for one in (DIRECTIONS if direction == BOTH else (direction,))]
    found = [part for part in parts if part is not None]
    if len(found) < len(parts):
        return None
    return Prediction(
        sum(part.ms for part in found),
        max(part.error for part in found),
        found[0].basis,
        all(part.alike for part in found),
        None if found[0].beyond is None else any(part.beyond for part in found),
    )


def _predicted(subject: Subject, direction: str, ours: Sequence[Timing]) -> Prediction | None:
    cost = layout_cost(subject.layout, subject.dim, subject.kv_heads)
    forward = direction == "forward"
    flops = cost.forward_flops if forward else cost.backward_flops
    rows = [row for row in ours if row.direction == direction]
    work = [_flops(row) for row in rows]
    beyond = not min(work) <= flops <= max(work) if work else None
    if subject.card == MODEL_CARD:
        ms, error = (cost.forward_ms, cost.forward_error) if forward else (cost.backward_ms, cost.backward_error)
        assert ms is not None  # a whole layout has a time
        return Prediction(ms, error, f"pattern_studio's cost model, {cost.card}", cost.measured_like, beyond)
    asked = subject.dim, subject.layout.block
    kinds = Counter((row.dim, row.block) for row in rows)
    kind = asked if kinds[asked] >= CELLS else max(kinds, key=kinds.__getitem__, default=asked)
    chosen = [row for row in rows if (row.dim, row.block) == kind]
    fit = fitted(np.array([_flops(row) for row in chosen]), np.array([row.ms for row in chosen]))
    if fit is None:
        return None
    arm = " of our Hopper kernels" if chosen and chosen[0].arm == "hopper" else ""
    block = f"block {kind[1][0]} x {kind[1][1]}"
    basis = f"a line fitted to {len(chosen)} cells{arm} on {subject.card}, D {kind[0]}, {block}"
    return Prediction(fit.call_ms + flops / (fit.teraflops * 1e9), fit.error, basis, kind == asked, beyond)


def _count(rows: Sequence[Timing], direction: str) -> int:
    return sum(row.direction == direction for row in rows)


def _flops(row: Timing) -> float:
    return PRODUCTS[row.direction] * 2 * row.dim * row.batch * row.heads * row.density * row.tokens**2


def fitted(flops: NDArray[np.float64], ms: NDArray[np.float64]) -> Calibration | None:
    """`ms = call_ms + flops / (teraflops * 1e9)` by relative least squares, with the errors of cells left out.

    None where fewer than CELLS cells differ in work, or where more work would take less time.

    >>> fit = fitted(np.array([1e9, 2e9, 3e9, 4e9]), np.array([2.0, 3.0, 4.0, 5.0]))
    >>> round(fit.call_ms, 9), round(fit.teraflops, 9), fit.worst < 1e-9
    (1.0, 1.0, True)
    """
    if len(np.unique(flops)) < CELLS:
        return None
    call, per = _line(flops, ms)
    errors = [
        abs((other_call + flops[at] * other_per) / ms[at] - 1)
        for at in range(len(ms))
        for other_call, other_per in [_line(np.delete(flops, at), np.delete(ms, at))]
    ]
    return Calibration(call, 1e-9 / per, float(np.median(errors)), float(max(errors))) if per > 0 else None


def _line(flops: NDArray[np.float64], ms: NDArray[np.float64]) -> tuple[float, float]:
    scale = float(flops.max())  # so that the two columns are of one size
    design = np.stack([np.ones(len(ms)), flops / scale], 1) / ms[:, None]
    call, per = np.linalg.lstsq(design, np.ones(len(ms)), rcond=None)[0]
    return float(call), float(per) / scale
