"""The state of one visitor's session and the only way it changes: `reduce(state, event)`, pure.

Widgets never hold the truth. They show what the state says and send events, so that values survive a
change of page, a link restores everything, and undo is a matter of taking the previous value.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from pattern_studio import Pattern
from pattern_studio.plot import Viewport

from .events import (
    Boxed,
    CaptureChosen,
    Chosen,
    Compared,
    Drawn,
    Event,
    FamilyChosen,
    FieldSet,
    FitSet,
    HeadChosen,
    Inserted,
    Looked,
    Opened,
    OperatorChosen,
    PerformanceSet,
    ProblemSet,
    ReachSet,
    Redo,
    TargetChosen,
    TensorsSet,
    ToolChosen,
    Typed,
    Undo,
    Zoomed,
    ZoomedOut,
)
from .families import FAMILIES, family_of
from .fit_spec import FitSpec
from .painting import boxed, drawn
from .performance_view import PerformanceView
from .reach_view import ReachView
from .reading import read
from .work import MAX_BESIDE, Work

KEPT = 100  # steps of undo


@dataclass(frozen=True)
class State:
    """A session.

    - work: what the widgets show; its text may be broken.
    - shown: the last work whose text could be read: what pictures and figures are about.
    - past, future: works to go back and forward to, nearest last.
    - touch: what was edited last; edits of one thing in a row are one step of undo.
    - viewport: the part of the map in view, None for all of it; head: which head is drawn.
    - tool: what a box on the map does: zoom, add, remove or ask why; asked: the query row and key asked about.
    - operator: what words of the palette join the text with, "" to take its place.
    - target: which export is shown; head_dim, kv_heads: of the tensors it is for, 0 KV heads for one a query head.
    - look_layer, look_head: whose attention the Quality page shows.
    - capture: key of the capture that is measured on, "" for the bundled one; fit: the Fit page's form.
    - reach, performance: what these pages look at.
    - choices: by name, what pages show, such as filters of a table; for what has no meaning beyond its page.
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
    operator: str = "|"
    asked: tuple[int, int] | None = None
    target: str = "flex_attention"
    head_dim: int = 64
    kv_heads: int = 0
    look_layer: int = -1
    look_head: int = 0
    capture: str = ""
    fit: FitSpec = FitSpec()
    reach: ReachView = ReachView()
    performance: PerformanceView = PerformanceView()
    choices: tuple[tuple[str, Any], ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def can_undo(self) -> bool:
        return bool(self.past) or self.work != self.shown

    def choice(self, name: str, default: Any) -> Any:
        """What was chosen under a name."""
        return dict(self.choices).get(name, default)

    @property
    def pattern(self) -> Pattern:
        """The pattern that is shown."""
        pattern = self.shown.reading.pattern
        assert pattern is not None  # `shown` only ever takes works that can be read
        return pattern


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
            return replace(
                after, work=replace(work, text=state.work.text), viewport=None, asked=None
            )  # keeps half-typed text
        case Boxed(box, tool) if (tool or state.tool) == "zoom":
            return replace(state, viewport=box)
        case Boxed(box, tool) if (tool or state.tool) == "why":
            return replace(state, asked=((box.row_start + box.row_stop) // 2, (box.key_start + box.key_stop) // 2))
        case Boxed(box, tool):
            text = str(boxed(state.pattern, box, state.shown.problem(), (tool or state.tool) == "add"))
            return _edited(state, replace(state.shown, text=text), f"box {len(state.past)}")
        case Drawn(units, size, tool):
            adds = (tool or state.tool) == "add"
            text = str(drawn(state.pattern, units, size, state.shown.problem(), adds))
            return _edited(state, replace(state.shown, text=text), f"drawn {len(state.past)}")
        case Inserted(text, operator):
            joined = f"({state.shown.text}) {operator} ({text})" if operator else text
            pattern = read(joined).pattern
            text = joined if pattern is None else str(pattern)
            return _edited(state, replace(state.shown, text=text), f"inserted {len(state.past)}")
        case Zoomed(box):
            return replace(state, viewport=box)
        case Compared(n, text):
            texts = (*state.shown.beside[:n], text, *state.shown.beside[n + 1 :])
            work = replace(state.shown, beside=tuple(filter(str.strip, texts))[:MAX_BESIDE])
            return replace(_edited(state, work, f"beside {n}"), work=replace(work, text=state.work.text))
        case ToolChosen(tool):
            return replace(state, tool=tool)
        case OperatorChosen(operator):
            return replace(state, operator=operator)
        case ZoomedOut():
            return replace(state, viewport=None)
        case HeadChosen(head):
            return replace(state, head=head)
        case TargetChosen(target):
            return replace(state, target=target)
        case TensorsSet(field, value):
            return replace(state, **{field: value})
        case Chosen(name, value):
            return replace(state, choices=tuple({**dict(state.choices), name: value}.items()))
        case Looked(layer, head):
            return replace(state, look_layer=layer, look_head=head)
        case CaptureChosen(key):
            return replace(state, capture=key, look_layer=-1, look_head=0)
        case FitSet(field, value):
            return replace(state, fit=replace(state.fit, **{field: value}))
        case ReachSet(field, value):
            return replace(state, reach=replace(state.reach, **{field: value}))
        case PerformanceSet(field, value):
            return replace(state, performance=replace(state.performance, **{field: value}))
        case Opened(work, notes):
            work = replace(work, beside=work.beside or state.shown.beside)
            return replace(_edited(state, work, ""), viewport=None, asked=None, head=0, notes=notes)
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
    same = (work.q_len, work.kv_len) == (state.shown.q_len, state.shown.kv_len)
    viewport, asked = (state.viewport, state.asked) if same else (None, None)
    head = min(state.head, work.heads - 1)
    return replace(
        state,
        work=work,
        shown=work,
        past=past,
        future=future,
        touch="",
        viewport=viewport,
        asked=asked,
        head=head,
        notes=(),
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
