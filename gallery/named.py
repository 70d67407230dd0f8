"""Named patterns: small text files with a pattern, where it is from, and what it is drawn on.

A file is lines of `field: value`, an empty line, and the pattern's text; its name is the pattern's.

    title: Longformer
    family: Encoders
    source: Beltagy, Peters and Cohan 2020, arXiv:2004.05150
    tokens: 512
    block: 32
    note: A window around every token, and a few global tokens that see all and are seen by all.

    longformer(window=129, global_tokens=(range(0, 4),))

`heads`, `docs` (document lengths), `head` and `layer` (the ones that are drawn) are there where a pattern needs them.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pattern_studio as ps

FOLDER = Path(__file__).parent / "patterns"
FAMILIES = (
    "Decoders",
    "Encoders",
    "Dilated and multi-scale",
    "Graphs and draws",
    "Images and video",
    "Heads, layers, documents",
    "Ours",
)
REQUIRED = ("title", "family", "source", "tokens", "block", "note")
OPTIONAL = ("heads", "docs", "head", "layer")


@dataclass(frozen=True)
class Named:
    """A named pattern: `text` as it is written, `pattern` as it is read, `problem` and `block` to draw it on.

    `head` and `layer` are the ones that are drawn; `layer` is None where layers are alike.
    """

    name: str
    title: str
    family: str
    source: str
    note: str
    text: str
    pattern: ps.Pattern
    problem: ps.Problem
    block: int
    head: int = 0
    layer: int | None = None

    @property
    def layout(self) -> ps.BlockLayout:
        """The pattern lowered for its problem and block."""
        return ps.lower(self.pattern, self.problem, block=self.block, layer=self.layer)


def load(path: Path) -> Named:
    """Read one file.

    Raises:
        StudioError: a field that is missing or unknown, a family that is none of FAMILIES, numbers that are none, or
            a text that is no pattern; the message begins with the file's name.

    >>> str(load(FOLDER / "mistral.txt").pattern)
    'causal & window(127, 0)'
    """
    try:
        return _read(path.stem, path.read_text())
    except ps.StudioError as error:
        raise ps.StudioError(f"{path.name}: {error}") from None


def gallery() -> tuple[Named, ...]:
    """All named patterns, by family and then by name.

    >>> len({one.name for one in gallery()}) == len(gallery())
    True
    """
    return tuple(
        sorted((load(path) for path in FOLDER.glob("*.txt")), key=lambda one: (FAMILIES.index(one.family), one.name))
    )


def _read(name: str, content: str) -> Named:
    head, gap, text = content.partition("\n\n")
    lines = [line.partition(": ") for line in head.splitlines()]
    fields = {key: value.strip() for key, _, value in lines}
    if not gap or not text.strip():
        raise ps.StudioError("expected fields, an empty line and a pattern, got no pattern; write it below the fields")
    missing = [key for key in REQUIRED if not fields.get(key)]
    unknown = [key for key in fields if key not in REQUIRED + OPTIONAL]
    if missing or unknown or len(fields) < len(lines):
        raise ps.StudioError(
            f"expected each of {', '.join(REQUIRED)} once, and of {', '.join(OPTIONAL)} what is needed; "
            f"missing: {', '.join(missing) or 'none'}, unknown: {', '.join(unknown) or 'none'}"
        )
    if fields["family"] not in FAMILIES:
        raise ps.StudioError(f"expected a family among {', '.join(FAMILIES)}, got {fields['family']!r}")
    docs = tuple(_number("docs", part) for part in fields["docs"].split(",")) if "docs" in fields else None
    tokens = _number("tokens", fields["tokens"])
    return Named(
        name,
        fields["title"],
        fields["family"],
        fields["source"],
        fields["note"],
        text.strip(),
        ps.parse(text),
        ps.Problem(tokens, heads=_number("heads", fields.get("heads", "1")), docs=docs),
        _number("block", fields["block"]),
        _number("head", fields.get("head", "0")),
        _number("layer", fields["layer"]) if "layer" in fields else None,
    )


def _number(field: str, value: str) -> int:
    if not value.strip().isdecimal():
        raise ps.StudioError(f"{field} takes a whole number, got {value.strip()!r}")
    return int(value)
