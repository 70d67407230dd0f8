"""Measured times, each beside dense attention of the same run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from .timing_file import DIRECTIONS, Timing, TimingFile

BOTH = "both"


@dataclass(frozen=True)
class Measured:
    """An arm's time on one cell, `ms` and `tflops` of one direction or of both together.

    `dense`: the arm and milliseconds of the fastest dense attention over all pairs in the same run, with the same
    shape; None where the run has none.
    """

    row: Timing
    ms: float
    tflops: float
    dense: tuple[str, float] | None

    @property
    def is_dense(self) -> bool:
        return _is_dense(self.row)

    @property
    def speed_up(self) -> float | None:
        """Dense time / this time."""
        return self.dense[1] / self.ms if self.dense else None


def measured(files: Iterable[TimingFile], direction: str) -> list[Measured]:
    """Every cell of the files for a direction; for "both" the sums of cells that have either."""
    return [one for file in files for one in _of_run(file, direction)]


def _of_run(file: TimingFile, direction: str) -> list[Measured]:
    cells: dict[tuple, dict[str, Timing]] = {}
    seen: Counter[tuple] = Counter()
    for row in file.rows:
        cell = (row.card, row.software, row.date, shape_of(row), row.block, row.pattern, row.hash, row.density, row.arm)
        turn = cell, seen[cell, row.direction]  # the same cell timed again is another one
        seen[cell, row.direction] += 1
        cells.setdefault(turn, {})[row.direction] = row
    wanted = DIRECTIONS if direction == BOTH else (direction,)
    times = []
    for found in cells.values():
        if all(one in found for one in wanted):
            ms = sum(found[one].ms for one in wanted)
            work = sum(found[one].ms * found[one].tflops for one in wanted)
            times.append((found[wanted[0]], ms, work / ms))
    dense: dict[tuple, tuple[str, float]] = {}
    for row, ms, _ in times:
        at = row.card, row.software, row.date, shape_of(row)
        if _is_dense(row) and (at not in dense or ms < dense[at][1]):
            dense[at] = row.arm, ms
    return [
        Measured(row, ms, tflops, dense.get((row.card, row.software, row.date, shape_of(row))))
        for row, ms, tflops in times
    ]


def shape_of(row: Timing) -> tuple[int, ...]:
    """Batch, heads, KV heads, tokens and channels."""
    return row.batch, row.heads, row.kv_heads, row.tokens, row.dim


def _is_dense(row: Timing) -> bool:
    return row.pattern == "dense"
