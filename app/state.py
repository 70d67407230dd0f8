"""The state of one visitor's session and the only way it changes: `reduce(state, event)`, pure.

Widgets never hold the truth. They show what the state says and send events, so that values survive a
change of page, a link restores everything, and undo is a matter of taking the previous value.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import pattern_studio as ps
from pattern_studio import Pattern, Problem, StudioError
from pattern_studio.plot import Viewport

from .families import FAMILIES, family_of
from .reading import Reading, read

PRESET = "causal & (window(255, 0) | sink(4))"
MAX_LENGTH = 1_048_576  # query rows or keys
MAX_HEADS = 256
MAX_BLOCK = 1024
KEPT = 100  # steps of undo


@dataclass(frozen=True)
class Work:
    """What is being designed: the text as typed, and the problem. This is what undo brings back.

    `kv_len` None means as many keys as query rows; `docs` are document lengths as typed; `layer` is for
    patterns that differ by layer.
    """

    text: str = PRESET
    q_len: int = 1024
    kv_len: int | None = None
    heads: int = 9
    block_q: int = 64
    block_k: int = 64
    docs: str = ""
    layer: int = 0

    @property
    def reading(self) -> Reading:
        return read(self.text)

    @property
    def block(self) -> tuple[int, int]:
        return self.block_q, self.block_k

    def problem(self) -> Problem:
        """The problem, or a StudioError where lengths and documents don't fit."""
        kv_len = self.q_len if self.kv_len is None else self.kv_len
        return Problem(self.q_len, kv_len, None, self.heads, document_lengths(self.docs))


@dataclass(frozen=True)
class State:
    """A session.

    - work: what the widgets show; its text may be broken.
    - shown: the last work whose text could be read: what pictures and figures are about.
    - past, future: works to go back and forward to, nearest last.
    - touch: what was edited last; edits of one thing in a row are one step of undo.
    - viewport: the part of the map in view, None for all of it; head: which head is drawn.
    - tool: what a box on the map does: zoom, add or remove.
    - target: which export is shown; look_layer, look_head: whose attention the Quality page shows.
    - notes: what of a link could not be honoured.
    """

    work: Work = Work()
    shown: Work = Work()
    past: tuple[Work, ...] = ()
    future: tuple[Work, ...] = ()
    touch: str = ""
    viewport: Viewport | None = None
    head: int = 0
    tool: str = "zoom"
    target: str = "flex_attention"
    look_layer: int = -1
    look_head: int = 0
    notes: tuple[str, ...] = ()

    @property
    def can_undo(self) -> bool:
        return bool(self.past) or self.work != self.shown

    @property
    def pattern(self) -> Pattern:
        """The pattern that is shown."""
        pattern = self.shown.reading.pattern
        assert pattern is not None  # `shown` only ever takes works that can be read
        return pattern


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
    """A box was drawn on the map, in query rows and keys: the tool says what happens to it."""

    box: Viewport


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
class Looked:
    """Another layer or head on the Quality page."""

    layer: int
    head: int


@dataclass(frozen=True)
class Opened:
    """A link, or a pattern of the gallery: another work, with notes on what could not be honoured."""

    work: Work
    notes: tuple[str, ...] = ()


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
    | ToolChosen
    | ZoomedOut
    | HeadChosen
    | TargetChosen
    | Looked
    | Opened
    | Undo
    | Redo
)


def reduce(state: State, event: Event) -> State:
    """The state after an event. Pure: no widget, no clock, nothing kept elsewhere.

    >>> state = reduce(State(), FieldSet("left", 63))
    >>> state.work.text, reduce(state, Undo()).work.text
    ('causal & (window(63, 0) | sink(4))', 'causal & (window(255, 0) | sink(4))')
    """
    match event:
        case Typed(text):
            return _edited(state, replace(state.work, text=text), "text")
        case FamilyChosen(name):
            return _edited(state, replace(state.work, text=_family_text(state, name)), "family")
        case FieldSet(field, value):
            return _edited(state, replace(state.work, text=_field_text(state, field, value)), f"field {field}")
        case ProblemSet(field, value):
            work = replace(state.shown, **{field: value})
            if work.kv_len == work.q_len:
                work = replace(work, kv_len=None)  # equal lengths go on changing together
            after = _edited(state, work, f"problem {field}")
            return replace(after, work=replace(work, text=state.work.text), viewport=None)  # keeps half-typed text
        case Boxed(box) if state.tool == "zoom":
            return replace(state, viewport=box)
        case Boxed(box):
            return _edited(state, replace(state.shown, text=_painted(state, box)), f"box {len(state.past)}")
        case ToolChosen(tool):
            return replace(state, tool=tool)
        case ZoomedOut():
            return replace(state, viewport=None)
        case HeadChosen(head):
            return replace(state, head=head)
        case TargetChosen(target):
            return replace(state, target=target)
        case Looked(layer, head):
            return replace(state, look_layer=layer, look_head=head)
        case Opened(work, notes):
            return replace(_edited(state, work, ""), viewport=None, head=0, notes=notes)
        case Undo() if state.work != state.shown:
            return replace(state, work=state.shown)  # first of all, away with what can't be read
        case Undo() if state.past:
            return _moved(state, state.past[-1], state.past[:-1], (*state.future, state.shown))
        case Redo() if state.future:
            return _moved(state, state.future[-1], (*state.past, state.shown), state.future[:-1])
    return state


def _edited(state: State, work: Work, touch: str) -> State:
    """Take a work. Only works that can be read become steps of undo; the others are typing in between."""
    if work.reading.pattern is None:
        return replace(state, work=work, touch=touch, notes=())
    head = min(state.head, work.heads - 1)
    if work == state.shown:
        return replace(state, work=work, notes=())
    same_edit = touch == state.touch and touch not in ("", "text") and state.past
    past = state.past if same_edit else (*state.past, state.shown)[-KEPT:]
    return replace(state, work=work, shown=work, past=past, future=(), touch=touch, head=head, notes=())


def _moved(state: State, work: Work, past: tuple[Work, ...], future: tuple[Work, ...]) -> State:
    viewport = state.viewport if (work.q_len, work.kv_len) == (state.shown.q_len, state.shown.kv_len) else None
    head = min(state.head, work.heads - 1)
    return replace(
        state, work=work, shown=work, past=past, future=future, touch="", viewport=viewport, head=head, notes=()
    )


def _family_text(state: State, name: str) -> str:
    family = FAMILIES[name]
    found = family_of(state.pattern)
    values = family.defaults
    if found is not None:
        values |= {key: value for key, value in found[1].items() if key in values}
    return str(family.build(values))


def _field_text(state: State, field: str, value: int) -> str:
    found = family_of(state.pattern)
    if found is None or field not in found[1]:
        return state.work.text  # a form that has gone since: its last word comes too late
    family, values = found
    return str(family.build({**values, field: value}))


def _painted(state: State, box: Viewport) -> str:
    """The pattern with a rectangle added or taken away; rectangles are absolute positions, boxes are rows."""
    offset = state.shown.problem().offset
    rect = ps.rect(range(box.row_start + offset, box.row_stop + offset), range(box.key_start, box.key_stop))
    return str(state.pattern | rect if state.tool == "add" else state.pattern - rect)


def document_lengths(text: str) -> tuple[int, ...] | None:
    """Document lengths from a text such as "512, 256, 256"; an empty text means no documents.

    Raises:
        StudioError: something else than whole numbers.
    """
    if not text.strip():
        return None
    parts = [part.strip() for part in text.replace(";", ",").split(",")]
    if not all(part.isascii() and part.isdigit() and len(part) <= 10 for part in parts):
        raise StudioError(f"expected document lengths such as 512, 256, 256, got {text[:60]!r}; write whole numbers")
    return tuple(int(part) for part in parts)
