"""Results of `python -m benchmarks.run`, read from a JSON file that may come from anyone."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, NoReturn

from pattern_studio import StudioError

MAX_BYTES = 4 * 2**20
MAX_ROWS = 20_000
MAX_NAME = 200  # characters of a card, an arm, a pattern's name
MAX_COUNT = 2**31 - 1
MAX_TILES = 2**53
KINDS = ("full", "band", "bits")
DIRECTIONS = ("forward", "backward")
# Of benchmarks.run; read past, as they are no time of a kernel.
OTHER_PASSES = ("end_to_end", "end_to_end_one_thread", "plan")
MAKE = "take a result of benchmarks.run"


class OtherStudyError(StudioError):
    """A sound file of measurements, but not of kernels' times."""


@dataclass(frozen=True)
class Timing:
    """One measured cell: the median time of an arm's forward or backward pass.

    - software, date: what it ran on, as text; kv_heads: key and value heads.
    - tokens: query rows and keys; dim: channels of a head; block: (block_q, block_k).
    - pattern: its name in the benchmark, or its text; hash: of the pattern, "" where the file has none or where it does
      not say everything, as with documents and layers.
    - density: active tiles / tiles; ms: milliseconds; tflops: of the pairs in active tiles, a second.
    - tiles: full, banded and bit-masked ones of one sequence over all heads, in the order of KINDS; None where the file
      does not say.
    """

    card: str
    software: str
    date: str
    batch: int
    heads: int
    kv_heads: int
    tokens: int
    dim: int
    block: tuple[int, int]
    pattern: str
    hash: str
    density: float
    arm: str
    direction: str
    ms: float
    tflops: float
    tiles: tuple[int, ...] | None = None


@dataclass(frozen=True)
class TimingFile:
    """The rows of one file: one run of the benchmark."""

    name: str
    rows: tuple[Timing, ...]


def read(data: bytes, name: str) -> TimingFile:
    """Read a file. Nothing in it is executed, and no number is taken that could not be a measurement.

    Raises:
        OtherStudyError: it is JSON with rows, none of which is a time of an arm.
        StudioError: too large, no JSON, or a row that is none, with its number and what is wrong.

    >>> read(b"PK", "x")
    Traceback (most recent call last):
    pattern_studio.errors.StudioError: x: expected whole JSON, got something else; take a result of benchmarks.run
    """
    if len(data) > MAX_BYTES:
        raise StudioError(f"{name}: expected at most {MAX_BYTES:,} bytes, got {len(data):,}; {MAKE}")
    try:
        content = json.loads(data, parse_constant=_no_number)
    except (ValueError, RecursionError):  # what is no UTF-8 is a ValueError, too
        raise StudioError(f"{name}: expected whole JSON, got something else; {MAKE}") from None
    rows = content.get("rows") if isinstance(content, dict) else None
    if not isinstance(rows, list) or not rows or not all(isinstance(row, dict) for row in rows):
        raise StudioError(f'{name}: expected an object with a list of "rows", got none; {MAKE}')
    if len(rows) > MAX_ROWS:
        raise StudioError(f"{name}: expected at most {MAX_ROWS:,} rows, got {len(rows):,}; split the file")
    if not any("arm" in row and "ms" in row for row in rows):
        raise OtherStudyError(f'{name}: expected rows with an "arm" and its "ms", got another study\'s; {MAKE}')
    mine = [_Row(name, number, row) for number, row in enumerate(rows, 1) if row.get("pass") not in OTHER_PASSES]
    return TimingFile(name, tuple(row.timing() for row in mine))


def _no_number(word: str) -> NoReturn:
    raise ValueError(word)  # NaN and Infinity, which JSON does not have


@dataclass(frozen=True)
class _Row:
    """One row on its way in; errors say where it stands."""

    file: str
    number: int
    values: dict[str, Any]

    def timing(self) -> Timing:
        shape = self.values.get("shape")
        if not isinstance(shape, dict):
            self._wrong("shape", "an object", shape)
        block = shape.get("block")
        if not isinstance(block, list) or len(block) != 2:
            self._wrong("shape.block", "two numbers", block)
        direction, density = self.values.get("pass"), self._positive("density")
        if direction not in DIRECTIONS:
            self._wrong("pass", " or ".join(DIRECTIONS), direction)
        if density > 1:
            self._wrong("density", "a number up to 1", density)
        batch, heads, kv_heads, tokens, dim = (
            self._count(shape.get(n), f"shape.{n}") for n in ("B", "H", "Hkv", "S", "D")
        )
        return Timing(
            self._text("card"),
            f"torch {self._text('torch')}, Triton {self._text('triton')}",
            self._text("date"),
            batch,
            heads,
            kv_heads,
            tokens,
            dim,
            (self._count(block[0], "shape.block"), self._count(block[1], "shape.block")),
            self._text("pattern", 10 * MAX_NAME),
            self._hash(),
            density,
            self._text("arm"),
            direction,
            self._positive("ms"),
            self._positive("tflops"),
            self._tiles(),
        )

    def _tiles(self) -> tuple[int, ...] | None:
        told = self.values.get("tiles")
        if told is None:
            return None
        if not isinstance(told, dict) or set(told) != set(KINDS):
            self._wrong("tiles", f"numbers of {', '.join(KINDS)}", told)
        counts = tuple(told[kind] for kind in KINDS)
        for kind, count in zip(KINDS, counts, strict=True):
            if isinstance(count, bool) or not isinstance(count, int) or not 0 <= count <= MAX_TILES:
                self._wrong(f"tiles.{kind}", "a whole number from 0 on", count)
        return counts

    def _hash(self) -> str:
        # Lengths of documents and the layer are no part of a pattern: its hash would find rows of other work.
        told = "hash" in self.values and not {"docs", "layer"} & self.values.keys()
        return self._text("hash") if told else ""

    def _text(self, key: str, most: int = MAX_NAME) -> str:
        value = self.values.get(key)
        if not isinstance(value, str):
            self._wrong(key, "a text", value)
        if not value.strip() or len(value) > most or not value.isprintable():
            self._wrong(key, f"1 to {most} printable characters", value)
        return value

    def _count(self, value: object, key: str) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MAX_COUNT:
            self._wrong(key, "a whole number from 1 on", value)
        return value

    def _positive(self, key: str) -> float:
        value = self.values.get(key)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1e12:
            self._wrong(key, "a number above 0", value)
        return float(value)

    def _wrong(self, key: str, expected: str, got: object) -> NoReturn:
        # What is nested may be nested too deeply to be shown.
        shown = f"a {type(got).__name__}" if isinstance(got, list | dict) else repr(got)[:60]
        raise StudioError(f"{self.file}, row {self.number}: expected {key} as {expected}, got {shown}; {MAKE}")
