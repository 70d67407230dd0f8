"""What can happen in a session: one small class each, sent by widgets, understood by `state.reduce`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pattern_studio.plot import Viewport

from .performance_view import Given
from .work import Work


@dataclass(frozen=True)
class Typed:
    """The text was edited by hand."""

    text: str


@dataclass(frozen=True)
class FamilyChosen:
    """A family was picked: its form opens with the numbers that both have, and defaults."""

    family: str


@dataclass(frozen=True)
class FieldSet:
    """A number of the form was changed; it must be the form of the text's family."""

    field: str
    value: int


@dataclass(frozen=True)
class ProblemSet:
    """A field of the problem was changed: a name and value of Work."""

    field: str
    value: int | str | None


@dataclass(frozen=True)
class Boxed:
    """A box was drawn on the map, in query rows and keys: the tool says what happens to it.

    `tool` is the one it was begun with, "" for the one that is chosen.
    """

    box: Viewport
    tool: str = ""


@dataclass(frozen=True)
class Drawn:
    """A shape was drawn freehand: units (row, key) of `size` query rows and keys; `tool` as in Boxed."""

    units: frozenset[tuple[int, int]]
    size: tuple[int, int]
    tool: str = ""


@dataclass(frozen=True)
class Inserted:
    """A word of the palette was picked: it joins the pattern with an operator, or takes its place with none."""

    text: str
    operator: str


@dataclass(frozen=True)
class OperatorChosen:
    """What the next words of the palette join the pattern with; "" for nothing: they take its place."""

    operator: str


@dataclass(frozen=True)
class Zoomed:
    """A box was drawn where boxes can only mean: look closer."""

    box: Viewport


@dataclass(frozen=True)
class Compared:
    """The n-th text to compare with; one after the last adds it, an empty one goes away."""

    n: int
    text: str


@dataclass(frozen=True)
class ToolChosen:
    """What the next boxes do: zoom, add or remove."""

    tool: str


@dataclass(frozen=True)
class ZoomedOut:
    """The whole map again."""


@dataclass(frozen=True)
class HeadChosen:
    """Another head on the map."""

    head: int


@dataclass(frozen=True)
class TargetChosen:
    """Another export on the Export page."""

    target: str


@dataclass(frozen=True)
class TensorsSet:
    """The tensors that an export is for have another head dimension or other KV heads: a field of State, its value."""

    field: str
    value: int


@dataclass(frozen=True)
class Looked:
    """Another layer or head on the Quality page."""

    layer: int
    head: int


@dataclass(frozen=True)
class CaptureChosen:
    """Another capture to measure on, by its key; "" is the bundled one."""

    key: str


@dataclass(frozen=True)
class FitSet:
    """A field of the Fit page's form was changed: a name and value of FitSpec."""

    field: str
    value: float | int | str | bool


@dataclass(frozen=True)
class ReachSet:
    """A choice of the Reach page: a name and value of ReachView."""

    field: str
    value: int | None


@dataclass(frozen=True)
class PerformanceSet:
    """A choice of the Performance page: a name and value of PerformanceView."""

    field: str
    value: str | int | Given


@dataclass(frozen=True)
class Opened:
    """A link, or a pattern of the gallery: another work, with notes on what could not be honoured."""

    work: Work
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Chosen:
    """A choice that only says what a page shows: its name and value."""

    name: str
    value: Any


@dataclass(frozen=True)
class Undo:
    """Back to the work before."""


@dataclass(frozen=True)
class Redo:
    """Forward again."""


Event = (
    Typed
    | FamilyChosen
    | FieldSet
    | ProblemSet
    | Boxed
    | Drawn
    | Inserted
    | OperatorChosen
    | Zoomed
    | Compared
    | ToolChosen
    | ZoomedOut
    | HeadChosen
    | TargetChosen
    | TensorsSet
    | Looked
    | CaptureChosen
    | FitSet
    | ReachSet
    | PerformanceSet
    | Opened
    | Chosen
    | Undo
    | Redo
)
