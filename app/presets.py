"""The gallery: the language's presets, each at a size that shows its shape, and two patterns of the app's own."""

from __future__ import annotations

import inspect
import re
from dataclasses import dataclass
from typing import Any

from pattern_studio.presets import PRESETS as MAKERS

from .work import Work


@dataclass(frozen=True)
class Preset:
    """A pattern with its title, its source and what it is good for."""

    title: str
    source: str
    about: str
    work: Work


# What the papers take for thousands of tokens, shrunk to a problem of about 1,024: arguments, and the problem.
_SHOWN: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "mistral": ({"window": 256}, {}),
    "streaming_llm": ({"sinks": 4, "recent": 252}, {}),
    "longformer": ({"window": 129, "global_tokens": (range(0, 16),)}, {}),
    "longformer_dilated": (
        {"window": 129, "heads": 3, "dilated_heads": 1, "global_tokens": (range(0, 8),)},
        {"heads": 3},
    ),
    "bigbird": ({"random_blocks": 2, "global_blocks": 1}, {}),
    "sparse_transformer_strided": ({"stride": 64}, {}),
    "sparse_transformer_fixed": ({"stride": 128, "summary": 16}, {}),
    "longnet_heads": ({"heads": 4, "segments": (128, 256, 512, 1024), "rates": (1, 2, 4, 8)}, {"heads": 4}),
    "a_shape": ({"sinks": 64, "recent": 256}, {}),
    "vertical_slash": ({"cols": (range(0, 8), range(200, 208)), "offsets": (range(0, 64), range(384, 400))}, {}),
    "gemma": ({"layers": 2, "window": 256}, {}),
    "llama4": ({"layers": 4, "size": 256}, {}),
    "prefix_lm": ({"n": 256}, {}),
    "logsparse": ({"window": 4, "levels": 10}, {}),
    "deepspeed_fixed": ({"block": 32}, {}),
    "deepspeed_variable": ({"block": 32, "local_blocks": (2, 4, 8), "random_blocks": 1}, {}),
    "deepspeed_longformer": ({"block": 32}, {}),
    "h_transformer": ({"block": 32, "levels": 5}, {}),
    "pixelated_butterfly": ({}, {}),
    "exphormer": ({"unit": 32}, {}),
    "swin": ({"h": 32, "w": 32, "window": 8}, {}),
    "axial_image": ({"h": 32, "w": 32}, {}),
    "sliding_tile": ({"t": 4, "h": 16, "w": 16, "tile": (1, 4, 4)}, {}),
    "radial_video": ({"frame": 64}, {}),
    "mesh_levels": ({"device": 128, "node": 512, "keep": (10, 4, 1), "out_of": 20, "unit": 16}, {}),
}


def _preset(name: str) -> Preset:
    arguments, problem = _SHOWN.get(name, ({}, {}))
    words = (inspect.getdoc(MAKERS[name]) or "").replace("`", "")
    first, _, rest = words.partition("\n")[0].rstrip(".").partition(": ")
    title, about = (first, rest) if rest else (name.replace("_", " ").capitalize(), first)
    source = re.search(r"^Source: ([^;]*?)[;.]?$|^Source: ([^;]*);", words, re.MULTILINE)
    work = Work(text=str(MAKERS[name](**arguments)), **{"heads": 1, **problem})
    return Preset(title, (source[1] or source[2]) if source else "", f"{about[:1].upper()}{about[1:]}.", work)


PRESETS = (
    *(_preset(name) for name in MAKERS),
    Preset(
        "Packed documents",
        "FlashAttention's varlen, Dao 2023",
        "Several texts in one sequence that do not see each other.",
        Work(text="causal & docs", docs="384, 192, 448", heads=1),
    ),
    Preset(
        "A pattern for each head",
        "after MoA, Fu et al. 2024",
        "Near, dilated and dense heads in one layer.",
        Work(
            text="causal & heads({range(0, 4): window(127, 0), range(4, 7): dilated(63, 0, rate=8) | window(31, 0), "
            "range(7, 9): dense})"
        ),
    ),
)
