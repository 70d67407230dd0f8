"""What a pattern shows of itself in a notebook: a picture and figures, on a problem chosen to fit it.

A pattern has no lengths, so one is chosen from its own numbers: twice the largest, or its grid, at
least 64 tokens, in 64 tiles a side. The caption says which.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator
from dataclasses import dataclass
from html import escape

from .assignment import Assignment
from .errors import StudioError
from .expr import Pattern
from .layout import BlockLayout
from .lowering import lower
from .metrics.density import layout_stats
from .patterns import PRIMITIVES
from .patterns.docs import Within
from .plot.picture import picture
from .plot.svg import svg
from .problem import Problem

SIDE = 64  # tiles along a side of the picture
LONGEST = 2**15  # tokens
DOCUMENTS = (24, 8, 32)  # of 64 tokens, for patterns that need documents


@dataclass(frozen=True)
class Sample:
    """One head (and layer) of a pattern on a problem to show it on, and words for what was chosen."""

    pattern: Pattern
    problem: Problem
    block: int
    words: str

    @property
    def layout(self) -> BlockLayout:
        """The sample lowered."""
        return lower(self.pattern, self.problem, block=self.block)


def sample(pattern: Pattern) -> Sample:
    """Choose what to show a pattern on. Raises StudioError where no head or layer stands for it.

    >>> import pattern_studio as ps
    >>> sample(ps.parse("causal & window(255, 0)")).words
    '512 tokens, block 8'
    """
    said, index = [], {}
    for node in _nodes(pattern):
        if isinstance(node, Assignment) and node.unit not in index:
            span = node.cases[0][0]
            index[node.unit] = span if isinstance(span, int) else span[0]
            said.append(f"{node.unit} {index[node.unit]}")
    one = pattern.resolve(index.get("head", 0), index.get("layer"))
    tokens = _tokens(one)
    docs = None
    if any(node == PRIMITIVES["docs"] or isinstance(node, Within) for node in _nodes(one)):
        docs = tuple(n * (tokens // SIDE) for n in DOCUMENTS[:2])
        docs = (*docs, tokens - sum(docs))
        said.append(f"documents of {', '.join(map(str, docs))} tokens")
    block = max(1, -(-tokens // SIDE))
    said = [f"{tokens:,} tokens", f"block {block}", *said]
    return Sample(one, Problem(tokens, docs=docs), block, ", ".join(said))


def pattern_svg(pattern: Pattern) -> str | None:
    """The picture of a pattern, SVG text; None (a notebook then shows the text) where it can't be drawn alone.

    >>> import pattern_studio as ps
    >>> pattern_svg(ps.causal)[:4]
    '<svg'
    """
    try:
        return svg(picture(sample(pattern).layout))
    except StudioError:
        return None


def pattern_html(pattern: Pattern) -> str:
    """The picture of a pattern beside its figures, HTML; the reason in words where it can't be drawn alone.

    >>> import pattern_studio as ps
    >>> "token density, of the causal triangle" in pattern_html(ps.causal)
    True
    """
    text = f"<code>{escape(_short(str(pattern)))}</code>"
    try:
        shown = sample(pattern)
        drawing, stats = svg(picture(shown.layout)), layout_stats(shown.pattern, shown.problem, shown.block)
    except StudioError as error:
        return f"<div>{text}<p>No picture: {escape(str(error))}</p></div>"
    figures = {
        "shown on": shown.words,
        "allowed pairs": f"{stats.pairs:,}",
        "token density": _percent(stats.density.token),
        "token density, of the causal triangle": _percent(stats.density.token_of_causal),
        f"block density, block {shown.block}": _percent(stats.density.block),
        "block efficiency": _percent(stats.block_efficiency),
        "empty rows": f"{stats.empty_rows:,}",
    }
    rows = "".join(f"<tr><td>{escape(name)}</td><td>{escape(value)}</td></tr>" for name, value in figures.items())
    source = base64.b64encode(drawing.encode()).decode()
    image = f'<img src="data:image/svg+xml;base64,{source}" alt="attention pattern" width="420">'
    return f'<div>{text}<div style="display:flex;align-items:center;gap:2em">{image}<table>{rows}</table></div></div>'


def _nodes(pattern: Pattern) -> Iterator[Pattern]:
    yield pattern
    for part in pattern.parts():
        yield from _nodes(part)


def _tokens(pattern: Pattern) -> int:
    """A length at which the pattern shows its shape: its grid, or a power of two over twice its largest number."""
    cells = [grid.cells for node in _nodes(pattern) if (grid := getattr(node, "grid", None)) is not None]
    if cells and max(cells) <= LONGEST:
        return max(cells)
    seeds = re.sub(r"seed=\d+", "", str(pattern))
    numbers = [int(n) for n in re.findall(r"\d+", seeds) if len(n) <= 9]
    largest = max((n for n in numbers if 2 * n <= LONGEST), default=1)
    return max(SIDE, 1 << (2 * largest - 1).bit_length())


def _short(text: str) -> str:
    return text if len(text) <= 400 else f"{text[:400]} ..."


def _percent(share: float | None) -> str:
    return "none" if share is None else f"{100 * share:.3g} %"
