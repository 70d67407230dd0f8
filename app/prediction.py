"""How long a pattern would take on a card: predicted by the cost model, or found among the measured cells."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from pattern_studio import BlockLayout, Pattern
from pattern_studio.layout import TileKind
from pattern_studio.metrics import layout_cost
from pattern_studio.metrics.cost import CALIBRATED, PRODUCTS

from .time_model import CELLS, Fit, fitted
from .timing_file import DIRECTIONS, Timing
from .timings import BOTH, shape_of

MODEL_CARD = CALIBRATED.split(",")[0]  # the card that pattern_studio's cost model was fitted to
OURS = ("hopper", "ours")  # the arms that patterns run on, first the one that `auto` takes where it serves
KINDS = (TileKind.FULL, TileKind.BAND, TileKind.BITS)  # as in Timing.tiles
NEAR = 8  # cells of at most so many times fewer or more tokens are preferred: very short ones wait for the host


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
    - beyond: whether the pattern has less or more work than all of these cells; None where none is at hand.
    """

    ms: float
    error: float
    basis: str
    alike: bool
    beyond: bool | None


def predicted(subject: Subject, direction: str, rows: Iterable[Timing]) -> Prediction | None:
    """How long our kernels would take; None where the card has too few cells to tell.

    For the card that pattern_studio's cost model was fitted to it is that model's estimate. For another what a call, a
    block of rows and a tile of each kind take is fitted to the rows of our kernels on it, or where too few rows say
    their tiles the time of a call and the speed: of the kernels that `auto` takes there, if enough is known of them.
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
    if subject.card == MODEL_CARD:
        ms, error = (cost.forward_ms, cost.forward_error) if forward else (cost.backward_ms, cost.backward_error)
        assert ms is not None  # a whole layout has a time
        basis = f"pattern_studio's cost model, {cost.card}"
        return Prediction(ms, error, basis, cost.measured_like, _beyond(flops, rows))
    asked = subject.dim, subject.layout.block
    kinds = Counter((row.dim, row.block) for row in rows)
    kind = asked if kinds[asked] >= CELLS else max(kinds, key=kinds.__getitem__, default=asked)
    chosen = [row for row in rows if (row.dim, row.block) == kind]
    tokens = subject.layout.problem.kv_len
    near = [row for row in chosen if tokens <= NEAR * row.tokens and row.tokens <= NEAR * tokens]
    counted = [row for row in near if row.tiles is not None]
    # The first way that enough cells are there for: what they know, the work of a row, the subject's.
    ways: list[tuple[str, Sequence[Timing], Callable[[Timing], list[float]], list[float]]] = [
        ("what rows and full, banded and bit-masked tiles took in", counted, _parts, _parts_of(subject.layout)),
        ("a line fitted to", near, lambda row: [1.0, _flops(row)], [1.0, flops]),
        ("a line fitted to", chosen, lambda row: [1.0, _flops(row)], [1.0, flops]),
    ]
    for how, cells, parts, own in ways:
        fit = _fitted(cells, parts)
        if fit is not None:
            arm = " of our Hopper kernels" if cells[0].arm == "hopper" else ""
            block = f"block {kind[1][0]} x {kind[1][1]}"
            basis = f"{how} {len(cells)} cells{arm} on {subject.card}, D {kind[0]}, {block}"
            return Prediction(fit.ms(own), fit.error, basis, kind == asked, _beyond(flops, cells))
    return None


def _beyond(flops: float, cells: Sequence[Timing]) -> bool | None:
    work = [_flops(row) for row in cells]
    return not min(work) <= flops <= max(work) if work else None


def _fitted(cells: Sequence[Timing], parts: Callable[[Timing], list[float]]) -> Fit | None:
    if len(cells) < CELLS:
        return None
    return fitted(np.array([parts(row) for row in cells]), np.array([row.ms for row in cells]))


def _parts(row: Timing) -> list[float]:
    """A call, blocks of rows over all heads, and tiles by kind."""
    assert row.tiles is not None
    rows = row.heads * -(-row.tokens // row.block[0])
    return [1.0, *(float(row.batch * count) for count in (rows, *row.tiles))]


def _parts_of(layout: BlockLayout) -> list[float]:
    rows = layout.problem.heads * layout.q_blocks
    return [1.0, float(rows), *(float(layout.tiles(kind)) for kind in KINDS)]


def _count(rows: Sequence[Timing], direction: str) -> int:
    return sum(row.direction == direction for row in rows)


def _flops(row: Timing) -> float:
    return PRODUCTS[row.direction] * 2 * row.dim * row.batch * row.heads * row.density * row.tokens**2
