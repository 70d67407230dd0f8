"""The bridge between the pure state and Streamlit: where the state is kept, and widgets that follow it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import uuid4

import streamlit as st

from .events import Event, Opened
from .link import from_params, to_params
from .state import State, reduce
from .work import Work

_KEY = "studio state"
_TURNS = "turns of widgets"
_DRAWN = "drawn by name"


def state() -> State:
    """This visitor's state; on the first call of a session it is what the address says."""
    if _KEY not in st.session_state:
        fresh = State()
        opened = from_params(st.query_params.to_dict())
        if opened is not None:
            fresh = reduce(fresh, Opened(*opened))
            # Nothing was there before the link, so there is nothing to undo.
            fresh = State(fresh.work, fresh.shown, notes=fresh.notes)
        st.session_state[_KEY] = fresh
    return st.session_state[_KEY]


def visitor() -> str:
    """A name for this session that no other has."""
    return st.session_state.setdefault("visitor", uuid4().hex)


def send(event: Event) -> None:
    """Change the state; for callbacks of widgets, which run before the page is drawn again."""
    st.session_state[_KEY] = reduce(state(), event)


def follow(name: str, value: Any) -> str:
    """The key for a widget that shows a value of the state; give the widget the value as its default, too.

    While the widget shows what the state says its key stays. Where they differ (after undo, a link, an edit
    elsewhere), or after another page, it gets a key that never was, and so is a new widget that begins with
    the right value. Setting the old one through session_state would do the same on paper, but a run that is
    overtaken by the next one loses what it set, and the browser would go on with, and send back, what it had.
    """
    turns: dict[str, int] = st.session_state.setdefault(_TURNS, {})
    key = f"{name} {turns.get(name, 0)}"
    if key not in st.session_state or st.session_state[key] != value:
        turns[name] = turns.get(name, 0) + 1
        key = f"{name} {turns[name]}"
    return key


def on(key: str, event: Callable[[Any], Event | None]) -> Callable[[], None]:
    """The callback of a widget with this key: sends the event of its value, where it has one.

    A browser that is busy can send the value of a widget after another has taken its place, and Streamlit
    takes that for a change. Such late words are not listened to.
    """

    def callback() -> None:
        name, turn = key.rsplit(" ", 1)
        if st.session_state[_TURNS].get(name) == int(turn):
            happened = event(st.session_state[key])
            if happened is not None:
                send(happened)

    return callback


def anew(name: str, content: Any) -> str:
    """The key for a widget whose content is a picture: another picture, another key, that never comes back.

    A box drawn on one picture must not be taken for one on the next, not even after undo.
    """
    turns: dict[str, int] = st.session_state.setdefault(_TURNS, {})
    drawn: dict[str, Any] = st.session_state.setdefault(_DRAWN, {})
    if name not in drawn or drawn[name] != content:
        turns[name] = turns.get(name, 0) + 1
        drawn[name] = content
    return f"{name} {turns[name]}"


def remember_pages(pages: dict[str, Any]) -> None:
    """Keep this run's pages by title, for `go_to`."""
    st.session_state["pages"] = pages


def go_to(title: str) -> None:
    """Leave for another page at once."""
    st.switch_page(st.session_state["pages"][title])


def sync_address(work: Work) -> None:
    """Let the address bar hold the work, so that copying it, or a reload, brings everything back."""
    params = to_params(work)
    if params is None:
        st.query_params.clear()
    elif params != st.query_params.to_dict():
        st.query_params.from_dict(params)
