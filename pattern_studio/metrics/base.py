"""Metric: the base of everything that is measured of one layer."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:  # they need torch, which the layout's own figures do without
    from .chunk import Chunk
    from .subject import Subject


class Metric(ABC):
    """Measures one layer, then says what it found for a head, the layer or several layers.

    A metric returns its figures under the keys that they have in the report: numbers, text, None
    where there is nothing to measure, or frozen dataclasses, dicts, lists and tuples of such.
    """

    @abstractmethod
    def __init__(self, subject: Subject) -> None: ...

    @abstractmethod
    def figures(self, heads: slice = slice(None)) -> dict[str, Any]:
        """The figures of some of the layer's heads together, by default of all."""

    @classmethod
    @abstractmethod
    def over_layers(cls, layers: Sequence[Self]) -> dict[str, Any]:
        """The figures of several layers together."""


class StreamedMetric(Metric):
    """A metric of the attention itself, added up while the layer streams by in chunks of rows."""

    @abstractmethod
    def add(self, chunk: Chunk) -> None:
        """Take in one chunk; every row of every head comes exactly once."""

    def finish(self) -> None:
        """Called after the last chunk: what is only needed until then can go, before the next layer comes."""
