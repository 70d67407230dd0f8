"""The gallery's named patterns with what they keep and cost, as `python -m gallery.build` packaged them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from .work import Work

PACKAGED = Path(__file__).parent / "static" / "gallery.json"


@dataclass(frozen=True)
class Named:
    """A named pattern: where it is from, the work that draws it, and its figures.

    `kept` is what it keeps of the capture in `captured()`, None where `why_not` says why; `predicted` what one pass is
    predicted to cost at a length of use, None for documents and grids; `measured` the benchmarks' rows of this pattern.
    """

    name: str
    title: str
    family: str
    source: str
    note: str
    work: Work
    head: int
    kept: dict[str, Any] | None
    why_not: str | None
    predicted: dict[str, Any] | None
    measured: tuple[dict[str, Any], ...]

    def has(self, words: str) -> bool:
        """Whether every one of the words is somewhere in what is written of it.

        >>> [one.name for one in named() if one.has("Mistral")]
        ['mistral']
        """
        text = " ".join((self.name, self.title, self.source, self.note, self.work.text)).lower()
        return all(word in text for word in words.lower().split())


@cache
def named() -> tuple[Named, ...]:
    """All of them, by family.

    >>> one = next(one for one in named() if one.name == "mistral")
    >>> one.work.text, one.work.q_len, one.family
    ('mistral(128)', 512, 'Decoders')
    """
    return tuple(_read(found) for found in json.loads(PACKAGED.read_text())["patterns"])


def captured() -> str:
    """What was measured on, in words."""
    return json.loads(PACKAGED.read_text())["capture"]


def _read(found: dict[str, Any]) -> Named:
    work = Work(
        text=found["text"],
        q_len=found["tokens"],
        heads=found["heads"],
        block_q=found["block"],
        block_k=found["block"],
        docs=", ".join(map(str, found["docs"])),
        layer=found["layer"] or 0,
    )
    same = {name: found[name] for name in ("name", "title", "family", "source", "note", "head", "kept", "why_not")}
    return Named(**same, work=work, predicted=found["predicted"], measured=tuple(found["measured"]))
