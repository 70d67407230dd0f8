"""The pattern's text with its error line, and what is done with the whole: undo, redo, link, words."""

from __future__ import annotations

import inspect
from html import escape
from urllib.parse import urlencode

import streamlit as st

from pattern_studio import vocabulary

from ..events import Redo, Typed, Undo
from ..link import MAX_LINK, to_params
from ..reading import Reading, pointer
from ..session import follow, on, sends
from ..state import State
from ..words import sentence
from . import export_list, palette_menu


def render(state: State, export: bool = True) -> None:
    """Draw the bar, with or without the list of exports; typing is read after a pause, without Enter."""
    key = follow("text", state.work.text)
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        st.text_input(
            "Pattern",
            state.work.text,
            key=key,
            on_change=on(key, Typed),
            live="150ms",
            label_visibility="collapsed",
            placeholder="causal & window(255, 0)",
            autocomplete="off",
        )
        st.button(
            "",
            icon=":material/undo:",
            key="undo",
            help="Undo the last change of text or problem",
            disabled=not state.can_undo,
            on_click=sends(Undo()),
        )
        st.button(
            "",
            icon=":material/redo:",
            key="redo",
            help="Redo",
            disabled=not state.future,
            on_click=sends(Redo()),
        )
        if export:
            palette_menu.popover(state)
        with st.popover("Link", icon=":material/link:"):
            _link(state)
        words = st.popover("Words", icon=":material/menu_book:", key="words", on_change="rerun")
        if words.open:
            with words:
                _words()
        if export:
            export_list.popover(state)
    st.html(status(state.work.text, state.work.reading))


def status(text: str, reading: Reading) -> str:
    """HTML below the box: the pattern in words, or the error with a caret under its place."""
    if reading.pattern is not None:
        return f'<div class="ps-status plain" role="status">{escape(sentence(reading.pattern))}</div>'
    words = f'<span class="words">{escape(reading.problem)}</span>'
    if reading.column is None:
        return f'<div class="ps-status" role="alert"><span class="wrong">{words}</span></div>'
    shown, at = pointer(text, reading.column)
    caret = f'{" " * at}<span class="wrong">^ {words}</span>'
    # A text that fits in the box stands right above: the caret points into it. A longer one is quoted.
    body = caret if len(text) == len(shown) else f"{escape(shown)}\n{caret}"
    if at > len(shown) // 2 and len(reading.problem) > 60:
        body = _before(shown, at, words, len(text) == len(shown))
    return f'<div class="ps-status" role="alert">{body}</div>'


def _before(shown: str, at: int, words: str, fits: bool) -> str:
    """A long message about a place far right goes to a line of its own, below its caret."""
    caret = f'{" " * at}<span class="wrong">^</span>'
    line = f'<span class="wrong">{words}</span>'
    return f"{caret}\n{line}" if fits else f"{escape(shown)}\n{caret} {line}"


def _link(state: State) -> None:
    params = to_params(state.shown)
    if params is None:
        st.markdown(
            f"This text is longer than the {MAX_LINK:,} characters that fit in a link. "
            "Export the pattern as JSON instead."
        )
        return
    st.markdown("This address restores pattern, problem, block and page.")
    st.code(f"{st.context.url or ''}?{urlencode(params)}", language=None, wrap_lines=True)


def _words() -> None:
    st.markdown(
        "Combine with `|` (either), `&` (both), `-` (without), `^` (one only), `~` (not); move with `>> keys`, "
        "exchange query and key with `.T`."
    )
    lines = ["| word | what it does |", "|---|---|"]
    for name, word in vocabulary().items():
        first = (word.__doc__ or "").strip().splitlines()[0].replace("|", "\\|")
        lines.append(f"| `{name}{_arguments(word)}` | {first} |")
    st.markdown("\n".join(lines))


def _arguments(word: object) -> str:
    """The arguments of a word as they are written; those that can be left out with their default."""
    if not callable(word):
        return ""
    shown = []
    for part in inspect.signature(word).parameters.values():
        given = "" if part.default is part.empty else repr(part.default)
        shown.append(f"{part.name}={given}" if given or part.kind is part.KEYWORD_ONLY else part.name)
    return f"({', '.join(shown)})"
