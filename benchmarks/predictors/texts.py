"""Three texts for a study: one that patterns are fitted to, one that metrics read, one whose loss is measured."""

from __future__ import annotations

import gzip
import re
from pathlib import Path

from ..where import JARGON

SOURCE = "Jargon File 4.4.7 (29 Dec 2003), public domain, Debian's jargon-text"


def chapters(first: int, after: int, jargon: Path = JARGON) -> str:
    """Chapters of the Jargon File from `first` up to, not including, `after`: a line for each paragraph.

    >>> join_paragraphs("Two\\nlines. \\n\\n Three \\n {words}.")
    'Two lines.\\n\\nThree words.'
    """
    told = gzip.decompress(jargon.read_bytes()).decode().replace("\N{NO-BREAK SPACE}", " ")
    start, stop = (told.index(f"\nChapter {number}. ") for number in (first, after))
    return join_paragraphs(told[start:stop])


def join_paragraphs(text: str) -> str:
    """One line for each paragraph, without the braces of cross-references."""
    paragraphs = (" ".join(paragraph.split()) for paragraph in re.split(r"\n\s*\n", text.strip()))
    return "\n\n".join(paragraphs).replace("{", "").replace("}", "")
