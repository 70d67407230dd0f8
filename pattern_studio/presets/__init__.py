"""The registry of presets: patterns of the literature, composed from primitives. Listed here by hand.

>>> import pattern_studio as ps
>>> str(ps.parse("longformer(window=511, global_tokens=(0,))"))
'window(255, 255) | globals(rows=(0,), cols=(0,))'
"""

from __future__ import annotations

from collections.abc import Callable

from ..expr import Pattern
from .bigbird import bigbird
from .decoder import gemma, llama4, logsparse, mistral, prefix_lm
from .deepspeed import deepspeed_fixed, deepspeed_longformer, deepspeed_variable
from .graphs import exphormer, h_transformer, pixelated_butterfly
from .longformer import longformer, longformer_dilated
from .longnet import longnet_heads
from .mesh import mesh_levels
from .sparse_transformer import sparse_transformer_fixed, sparse_transformer_strided
from .streaming import a_shape, streaming_llm, vertical_slash
from .vision import axial_image, radial_video, sliding_tile, swin

PRESETS: dict[str, Callable[..., Pattern]] = {
    preset.__name__: preset
    for preset in (
        longformer,
        longformer_dilated,
        bigbird,
        sparse_transformer_strided,
        sparse_transformer_fixed,
        longnet_heads,
        streaming_llm,
        a_shape,
        vertical_slash,
        mistral,
        gemma,
        llama4,
        prefix_lm,
        logsparse,
        deepspeed_fixed,
        deepspeed_variable,
        deepspeed_longformer,
        h_transformer,
        pixelated_butterfly,
        exphormer,
        swin,
        axial_image,
        sliding_tile,
        radial_video,
        mesh_levels,
    )
}
