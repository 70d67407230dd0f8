"""Pattern Studio: design sparse-attention patterns, see them, measure them, take them to training code.

>>> import pattern_studio as ps
>>> pattern = ps.parse("causal & (window(63, 0) | sink(4))")
>>> ps.lower(pattern, q_len=4096, block=128).pairs
276250
"""

from .columns import Scope
from .errors import StudioError
from .expr import Pattern
from .grid import Grid as grid  # noqa: N813 - a word of the language
from .layout import BlockLayout, TileKind
from .leaf import block
from .lowering import dense_mask, lower
from .parse import ParseError, parse, vocabulary
from .patterns import PRIMITIVES
from .problem import Problem

__version__ = "0.1.0"

axial = PRIMITIVES["axial"]
blocks = PRIMITIVES["blocks"]
butterfly = PRIMITIVES["butterfly"]
causal = PRIMITIVES["causal"]
chunk = PRIMITIVES["chunk"]
dense = PRIMITIVES["dense"]
dilated = PRIMITIVES["dilated"]
docs = PRIMITIVES["docs"]
empty = PRIMITIVES["empty"]
expander = PRIMITIVES["expander"]
globals = PRIMITIVES["globals"]
heads = PRIMITIVES["heads"]
hierarchical = PRIMITIVES["hierarchical"]
layers = PRIMITIVES["layers"]
longnet = PRIMITIVES["longnet"]
neighborhood = PRIMITIVES["neighborhood"]
prefix = PRIMITIVES["prefix"]
radial = PRIMITIVES["radial"]
random = PRIMITIVES["random"]
rect = PRIMITIVES["rect"]
sink = PRIMITIVES["sink"]
slash = PRIMITIVES["slash"]
strided = PRIMITIVES["strided"]
tile_window = PRIMITIVES["tile_window"]
vertical = PRIMITIVES["vertical"]
window = PRIMITIVES["window"]

__all__ = [
    "BlockLayout",
    "ParseError",
    "Pattern",
    "Problem",
    "Scope",
    "StudioError",
    "TileKind",
    "axial",
    "block",
    "blocks",
    "butterfly",
    "causal",
    "chunk",
    "dense",
    "dense_mask",
    "dilated",
    "docs",
    "empty",
    "expander",
    "globals",
    "grid",
    "heads",
    "hierarchical",
    "layers",
    "longnet",
    "lower",
    "neighborhood",
    "parse",
    "prefix",
    "radial",
    "random",
    "rect",
    "sink",
    "slash",
    "strided",
    "tile_window",
    "vertical",
    "vocabulary",
    "window",
]
