"""The palette: every word of the language and every preset, each as a text that can be read as it stands."""

from __future__ import annotations

import inspect
from dataclasses import dataclass

from pattern_studio import vocabulary
from pattern_studio.presets import PRESETS as MAKERS

from .presets import PRESETS
from .work import Work

OPERATORS = {
    "|": "or: what either keeps",
    "&": "and: only what both keep",
    "&~": "without what it keeps",
    "": "instead of the text",
}
# Numbers that show a word's shape at about a thousand tokens. Words with constants, such as causal, need none.
_STARTS = {
    "prefix": "prefix(128)",
    "window": "window(127, 0)",
    "dilated": "dilated(31, 0, rate=8)",
    "strided": "strided(64)",
    "chunk": "chunk(256)",
    "sink": "sink(4)",
    "globals": "globals(rows=(range(0, 16),), cols=(range(0, 16),))",
    "vertical": "vertical((range(200, 216),))",
    "comb": "comb(128, (range(112, 128),))",
    "slash": "slash((0, 64, 128))",
    "hierarchical": "hierarchical(((64, 1), (256, 4), (1024, 16)))",
    "longnet": "longnet((128, 512), (1, 4))",
    "random": "random(2, unit=64, past=True)",
    "expander": "expander(4, unit=64)",
    "butterfly": "butterfly(unit=64)",
    "axial": "axial(grid(h=32, w=32))",
    "neighborhood": "neighborhood(grid(h=32, w=32), kernel=(7, 7))",
    "tile_window": "tile_window(grid(h=32, w=32), tile=(8, 8), window=(3, 3))",
    "radial": "radial(128)",
    "rect": "rect(range(512, 640), range(0, 128))",
    "blocks": "blocks((64, 64), ((0,), (0, 1)))",
    "heads": "heads({range(0, 4): window(63, 0), range(4, 9): dense})",
    "layers": "layers({range(0, 4): window(63, 0), range(4, 9): dense})",
}


@dataclass(frozen=True)
class Entry:
    """One thing to pick: its title, the text it puts in, and what it does; `preset` is the work of a whole pattern."""

    title: str
    text: str
    about: str
    preset: Work | None = None


def entries() -> tuple[Entry, ...]:
    """Words first, then presets.

    >>> [entry.text for entry in entries() if entry.title in ("causal", "sink")]
    ['causal', 'sink(4)']
    """
    words = tuple(
        Entry(name, _STARTS.get(name, name), _first_line(word))
        for name, word in vocabulary().items()
        if name not in MAKERS
    )
    return words + tuple(Entry(one.title, one.work.text, one.about, one.work) for one in PRESETS)


def _first_line(word: object) -> str:
    return (inspect.getdoc(word) or "").splitlines()[0]
