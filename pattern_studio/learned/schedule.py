"""schedule: density over training, tightened while the measured quality holds."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from ..errors import StudioError
from ..problem import whole


@dataclass
class DensitySchedule:
    """Starts dense and tightens step by step for as long as the quality that you measure holds.

    `update(quality)` is told the measured quality (mass recall, or any score in [0, 1]) and gives the
    density to use next. After `patience` measurements in a row of at least `quality` the density is
    multiplied by `factor`, down to `least`. A measurement below `quality - margin` goes back to the last
    density that held, and from there steps get smaller (the square root of `factor`), so the density
    settles near the smallest one that holds. In between nothing changes.

    Args:
        start, least: block densities, the share that is kept, with `0 < least <= start <= 1`.
        quality: what has to hold, above 0, up to 1.
        margin: how far below it a measurement may fall before the density goes back.
        factor: of a step, between 0 and 1.
        patience: measurements that must hold before a step.

    Raises StudioError for values outside these, and for a quality that was not measured.

    >>> schedule = DensitySchedule(start=0.5, least=0.1, quality=0.95, factor=0.8)
    >>> [round(schedule.update(quality), 3) for quality in (0.99, 0.97, 0.90, 0.96, 0.96)]
    [0.4, 0.32, 0.4, 0.358, 0.32]
    """

    start: float = 0.5
    least: float = 0.05
    quality: float = 0.95
    margin: float = 0.0
    factor: float = 0.9
    patience: int = 1

    def __post_init__(self) -> None:
        values = (self.start, self.least, self.quality, self.margin, self.factor)
        if any(isinstance(value, bool) or not isinstance(value, (int, float)) for value in values):
            raise StudioError(f"start, least, quality, margin and factor are numbers, got {values}")
        if not 0 < self.least <= self.start <= 1:
            raise StudioError(
                f"expected densities 0 < least <= start <= 1, got least {self.least:g} and start {self.start:g}; a "
                "density is the share that is kept"
            )
        if not 0 < self.quality <= 1 or not 0 <= self.margin < self.quality or not 0 < self.factor < 1:
            raise StudioError(
                f"expected quality above 0 and up to 1, margin from 0 and below it, and factor between 0 and 1, got "
                f"{self.quality:g}, {self.margin:g} and {self.factor:g}"
            )
        whole("patience", self.patience, 1)
        self.density = float(self.start)
        self._step, self._held, self._good = float(self.factor), float(self.start), 0

    def update(self, measured: float) -> float:
        """The density to use next, after a measurement at the present one."""
        if isinstance(measured, bool) or not isinstance(measured, (int, float)) or not 0 <= measured <= 1:
            raise StudioError(
                f"expected a measured quality from 0 to 1, got {measured!r}; leave update() out where none was measured"
            )
        if measured >= self.quality:
            self._held, self._good = self.density, self._good + 1
            if self._good >= self.patience:
                self.density, self._good = max(self.density * self._step, self.least), 0
        else:
            self._good = 0
            if measured < self.quality - self.margin:
                # Where nothing held yet there is nothing to go back to but less tight than now.
                back = self._held if self._held > self.density else self.density / self._step
                self.density, self._step = min(back, self.start), self._step**0.5
                self._held = self.density
        return self.density

    def state_dict(self) -> dict[str, Any]:
        """All of it as plain values, for a checkpoint."""
        return {**asdict(self), "density": self.density, "step": self._step, "held": self._held, "good": self._good}

    @classmethod
    def from_state_dict(cls, state: dict[str, Any]) -> DensitySchedule:
        """The schedule of a checkpoint; StudioError where a key is missing or unknown."""
        given = dict(state)
        try:
            density, step, held, good = (given.pop(key) for key in ("density", "step", "held", "good"))
            made = cls(**given)
        except (KeyError, TypeError) as error:
            raise StudioError(f"expected what state_dict() gave, got keys {sorted(state)} ({error})") from error
        made.density, made._step, made._held, made._good = density, step, held, good
        return made
