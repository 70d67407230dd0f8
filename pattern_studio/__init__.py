"""Pattern Studio: design sparse-attention patterns, see them, measure them, take them to training code.

>>> import pattern_studio as ps
>>> pattern = ps.parse("causal & (window(63, 0) | sink(4))")
>>> ps.lower(pattern, q_len=4096, block=128).pairs
276250
"""

from . import generators
from .columns import Scope
from .conventions import check, read_config, read_flash
from .diff import diff
from .errors import StudioError
from .explain import explain
from .expr import Pattern
from .grid import Grid as grid  # noqa: N813 - a word of the language
from .layout import BlockLayout, TileKind
from .leaf import block
from .lowering import dense_mask, from_mask, lower
from .lowering.lossy import cover, strict, threshold
from .parse import ParseError, parse, vocabulary
from .patterns import PRIMITIVES
from .plot import draw
from .presets import (
    a_shape,
    axial_image,
    bigbird,
    deepspeed_fixed,
    deepspeed_longformer,
    deepspeed_variable,
    exphormer,
    gemma,
    h_transformer,
    llama4,
    logsparse,
    longformer,
    longformer_dilated,
    longnet_heads,
    mesh_levels,
    mistral,
    pixelated_butterfly,
    prefix_lm,
    radial_video,
    sliding_tile,
    sparse_transformer_fixed,
    sparse_transformer_strided,
    streaming_llm,
    swin,
    vertical_slash,
)
from .problem import Problem
from .reading import read_block_mask, read_mask, read_mask_mod

__version__ = "0.1.0"

axial = PRIMITIVES["axial"]
blocks = PRIMITIVES["blocks"]
butterfly = PRIMITIVES["butterfly"]
causal = PRIMITIVES["causal"]
chunk = PRIMITIVES["chunk"]
comb = PRIMITIVES["comb"]
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
    "a_shape",
    "axial",
    "axial_image",
    "bigbird",
    "block",
    "blocks",
    "butterfly",
    "causal",
    "check",
    "chunk",
    "comb",
    "cover",
    "deepspeed_fixed",
    "deepspeed_longformer",
    "deepspeed_variable",
    "dense",
    "dense_mask",
    "diff",
    "dilated",
    "docs",
    "draw",
    "empty",
    "expander",
    "exphormer",
    "explain",
    "from_mask",
    "gemma",
    "generators",
    "globals",
    "grid",
    "h_transformer",
    "heads",
    "hierarchical",
    "layers",
    "llama4",
    "logsparse",
    "longformer",
    "longformer_dilated",
    "longnet",
    "longnet_heads",
    "lower",
    "mesh_levels",
    "mistral",
    "neighborhood",
    "parse",
    "pixelated_butterfly",
    "prefix",
    "prefix_lm",
    "radial",
    "radial_video",
    "random",
    "read_block_mask",
    "read_config",
    "read_flash",
    "read_mask",
    "read_mask_mod",
    "rect",
    "sink",
    "slash",
    "sliding_tile",
    "sparse_transformer_fixed",
    "sparse_transformer_strided",
    "streaming_llm",
    "strict",
    "strided",
    "swin",
    "threshold",
    "tile_window",
    "vertical",
    "vertical_slash",
    "vocabulary",
    "window",
]
