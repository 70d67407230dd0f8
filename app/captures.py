"""The captures of a session: the bundled one, and what this visitor uploaded or recorded, which no other sees."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import sha256
from typing import TYPE_CHECKING

import streamlit as st
from streamlit.runtime.scriptrunner import get_script_run_ctx

from . import session
from .record_spec import RecordSpec

if TYPE_CHECKING:
    from pattern_studio.capture import Capture

KEPT = 3  # captures of a session besides the bundled one; the oldest goes first
_KEY = "studio captures"


@dataclass(frozen=True, eq=False)
class Source:
    """A capture with what pages say of it.

    `key` names it by content: the SHA-256 of its file, "" for the bundled one. `load` gives it, and for the bundled one
    needs torch, which takes seconds to import: no page may wait for that. `gradients`: whether it holds any.
    """

    key: str
    title: str
    load: Callable[[], Capture]
    gradients: bool = False


def _bundled() -> Capture:
    from pattern_studio.capture import bundled

    return bundled()


BUNDLED = Source("", "SmolLM2-135M, 1,024 tokens of real text, layers 7 and 20", _bundled)


def source_of(capture: Capture, data: bytes) -> Source:
    """A capture that was read from a file's bytes."""
    numbers = list(capture.layers)
    layers = " and ".join(map(str, numbers)) if len(numbers) < 3 else f"{numbers[0]} to {numbers[-1]} ({len(numbers)})"
    model = " ".join(capture.model.split())
    model = model if len(model) <= 40 else f"{model[:39]}…"
    title = f"{model}, {len(capture.tokens):,} tokens, layer{'s' * (len(numbers) > 1)} {layers}"
    return Source(sha256(data).hexdigest(), title, lambda: capture, capture.gradients is not None)


@dataclass
class Store:
    """What one visitor has: sources by key, oldest first; what was wrong with the last file; files seen; the form."""

    sources: dict[str, Source] = field(default_factory=dict)
    problem: str = ""
    files: int = 0
    record: RecordSpec = RecordSpec()

    def add(self, source: Source) -> None:
        """Take a source; beyond KEPT the oldest is let go."""
        self.sources.pop(source.key, None)
        self.sources[source.key] = source
        while len(self.sources) > KEPT:
            del self.sources[next(iter(self.sources))]


def store() -> Store:
    """This visitor's captures. Not for callbacks: see `session.on`."""
    if _KEY not in st.session_state:
        st.session_state[_KEY] = Store()
    return st.session_state[_KEY]


def chosen() -> Source:
    """The capture that this visitor looks at; outside of a session the bundled one."""
    if get_script_run_ctx(suppress_warning=True) is None:
        return BUNDLED
    return store().sources.get(session.state().capture, BUNDLED)


def all_sources() -> dict[str, Source]:
    """Every capture that this visitor can look at, by key, the bundled one first."""
    return {BUNDLED.key: BUNDLED, **store().sources}
