"""What a text in the box means: a pattern, or an error and its place. Any text gets an answer, however hostile."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from pattern_studio import ParseError, Pattern, StudioError, parse

MAX_TEXT = 50_000  # characters; the language allows more, but a page must answer in a blink
SHOWN = 96  # characters of a text that fit in the box, about


@dataclass(frozen=True)
class Reading:
    """A pattern, or what is wrong: `problem` in words, at 0-based `column` where the place is known."""

    pattern: Pattern | None
    canonical: str = ""
    problem: str = ""
    column: int | None = None


@lru_cache(maxsize=128)
def read(text: str) -> Reading:
    """Read a text.

    >>> read("causal & windw(3, 0)").column, read("causal&sink(4)").canonical
    (9, 'causal & sink(4)')
    """
    if len(text) > MAX_TEXT:
        return Reading(None, problem=f"expected at most {MAX_TEXT:,} characters, got {len(text):,}; use the Python API")
    try:
        pattern = parse(text)
        hash(pattern)  # nesting that can be read can still be too deep to be walked
        return Reading(pattern, str(pattern))
    except ParseError as error:
        return Reading(None, problem=error.problem, column=error.column)
    except StudioError as error:
        return Reading(None, problem=str(error))
    except (RecursionError, MemoryError):
        return Reading(None, problem="nested too deeply to be worked with; split it into several patterns", column=0)


def pointer(text: str, column: int) -> tuple[str, int]:
    """The part of a one-line text around a column that can be shown, and where in it the place is.

    >>> pointer("a" * 200, 150)[1], len(pointer("a" * 200, 150)[0])
    (49, 97)
    """
    flat = "".join(" " if letter.isspace() else letter for letter in text)
    if len(flat) <= SHOWN:
        return flat, column
    start = max(0, min(column - SHOWN // 2, len(flat) - SHOWN))
    cut = flat[start : start + SHOWN]
    return (f"…{cut}", column - start + 1) if start else (cut, column)
