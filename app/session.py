"""The bridge between the pure state and Streamlit: where the state is kept, and widgets that follow it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

import streamlit as st

from .events import Event, Opened
from .link import from_params, to_params
from .state import State, reduce
from .work import Work

_KEY = "studio session"


@dataclass
class _Session:
    """What is kept for one visitor: the state, and how often each widget was made anew."""

    state: State
    visitor: str = field(default_factory=lambda: uuid4().hex)
    turns: dict[str, int] = field(default_factory=dict)
    drawn: dict[str, Any] = field(default_factory=dict)
    leave_for: str = ""

    def happened(self, event: Event | None, leave_for: str = "") -> None:
        if event is not None:
            self.state = reduce(self.state, event)
            self.leave_for = leave_for


def _mine() -> _Session:
    if _KEY not in st.session_state:
        fresh = State()
        opened = from_params(st.query_params.to_dict())
        if opened is not None:
            fresh = reduce(fresh, Opened(*opened))
            # Nothing was there before the link, so there is nothing to undo.
            fresh = State(fresh.work, fresh.shown, notes=fresh.notes)
        st.session_state[_KEY] = _Session(fresh)
    return st.session_state[_KEY]


def state() -> State:
    """This visitor's state; on the first call of a session it is what the address says."""
    return _mine().state


def visitor() -> str:
    """A name for this session that no other has."""
    return _mine().visitor


def sends(event: Event | Callable[[State], Event], leave_for: str = "") -> Callable[[], None]:
    """The callback of a button: sends the event, and leaves for the page with that title.

    An event that depends on the state is made of that at the click: the one at drawing may be older.
    Callbacks never look into `st.session_state` (see `on`).
    """
    session = _mine()
    return lambda: session.happened(event(session.state) if callable(event) else event, leave_for)


def follow(name: str, value: Any) -> str:
    """The key for a widget that shows a value of the state; give the widget the value as its default, too.

    While the widget shows what the state says its key stays. Where they differ (after undo, a link, an edit
    elsewhere), or after another page, it gets a key that never was, and so is a new widget that begins with
    the right value. Setting the old one through session_state would do the same on paper, but a run that is
    overtaken by the next one loses what it set, and the browser would go on with, and send back, what it had.
    """
    turns = _mine().turns
    key = f"{name} {turns.get(name, 0)}"
    if key not in st.session_state or st.session_state[key] != value:
        turns[name] = turns.get(name, 0) + 1
        key = f"{name} {turns[name]}"
    return key


def on(key: str, event: Callable[[Any], Event | None]) -> Callable[[], None]:
    """The callback of a widget with this key: sends the event of its value, where it has one.

    A browser that is busy can send the value of a widget after another has taken its place, and Streamlit
    takes that for a change. Such late words are not listened to.

    Every look into `st.session_state` is a point where Streamlit breaks off what runs in favour of what the
    visitor did next, in callbacks too: an Undo that is followed at once by another click would be forgotten.
    `to_dict` is no such point.
    """
    session = _mine()

    def callback() -> None:
        name, turn = key.rsplit(" ", 1)
        if session.turns.get(name) == int(turn):
            session.happened(event(st.session_state.to_dict()[key]))

    return callback


def anew(name: str, content: Any) -> str:
    """The key for a widget whose content is a picture: another picture, another key, that never comes back.

    A box drawn on one picture must not be taken for one on the next, not even after undo.
    """
    session = _mine()
    if name not in session.drawn or session.drawn[name] != content:
        session.turns[name] = session.turns.get(name, 0) + 1
        session.drawn[name] = content
    return f"{name} {session.turns[name]}"


def leave(pages: dict[str, Any]) -> None:
    """Go to the page that a button asked for, if one did; `pages` are this run's pages by title."""
    session = _mine()
    title, session.leave_for = session.leave_for, ""
    if title:
        st.switch_page(pages[title])


def sync_address(work: Work) -> None:
    """Let the address bar hold the work, so that copying it, or a reload, brings everything back."""
    params = to_params(work)
    if params is None:
        st.query_params.clear()
    elif params != st.query_params.to_dict():
        st.query_params.from_dict(params)
