"""Pattern Studio: design sparse-attention patterns, see them, measure them, take them to training code.

>>> import pattern_studio as ps
>>> pattern = ps.parse("causal & (window(63, 0) | sink(4))")
>>> ps.lower(pattern, q_len=4096, block=128).pairs
276250
"""

from .columns import Scope
from .errors import StudioError
from .expr import Pattern
from .layout import BlockLayout, TileKind
from .leaf import block
from .lowering import dense_mask, lower
from .parse import ParseError, parse, vocabulary
from .patterns import PRIMITIVES
from .problem import Problem

__version__ = "0.1.0"

causal = PRIMITIVES["causal"]
dense = PRIMITIVES["dense"]
docs = PRIMITIVES["docs"]
empty = PRIMITIVES["empty"]
blocks = PRIMITIVES["blocks"]
chunk = PRIMITIVES["chunk"]
dilated = PRIMITIVES["dilated"]
globals = PRIMITIVES["globals"]
heads = PRIMITIVES["heads"]
layers = PRIMITIVES["layers"]
random = PRIMITIVES["random"]
rect = PRIMITIVES["rect"]
sink = PRIMITIVES["sink"]
strided = PRIMITIVES["strided"]
window = PRIMITIVES["window"]

__all__ = [
    "BlockLayout",
    "ParseError",
    "Pattern",
    "Problem",
    "Scope",
    "StudioError",
    "TileKind",
    "block",
    "blocks",
    "causal",
    "chunk",
    "dense",
    "dense_mask",
    "dilated",
    "docs",
    "empty",
    "globals",
    "heads",
    "layers",
    "lower",
    "parse",
    "random",
    "rect",
    "sink",
    "strided",
    "vocabulary",
    "window",
]
