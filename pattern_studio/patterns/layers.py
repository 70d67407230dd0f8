"""layers: a pattern for each layer."""

from __future__ import annotations

from typing import ClassVar

from ..assignment import Assignment
from ..errors import StudioError


class Layers(Assignment):
    """Different patterns for different layers.

    `layers({range(0, 2): dense, range(2, 32, 2): p, range(3, 32, 2): q})`, or with `0:2` and
    `2:32:2` in text. Lowering takes the layer.

    >>> import pattern_studio as ps
    >>> ps.layers({0: ps.dense, 1: ps.causal}).resolve(layer=1)
    Causal()
    """

    name: ClassVar[str] = "layers"
    unit: ClassVar[str] = "layer"

    def resolve(self, head=0, layer=None):
        if layer is None:
            raise StudioError("this pattern differs by layer: say which one (layer=...)")
        return self.chosen(layer).resolve(head, layer)


PATTERN = Layers
