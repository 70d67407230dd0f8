"""Patterns of decoder language models, as their configurations give them."""

from __future__ import annotations

from ..errors import StudioError
from ..expr import Pattern
from ..patterns import PRIMITIVES
from ..problem import whole

causal, chunk, layers_, prefix, slash, window_ = (
    PRIMITIVES[word] for word in ("causal", "chunk", "layers", "prefix", "slash", "window")
)


def mistral(window: int = 4096) -> Pattern:
    """Mistral's sliding window: the last `window` tokens, the query included.

    Predicate: `0 <= i - j < window`; Hugging Face's `sliding_window=window`.

    Source: Mistral 7B (Jiang et al. 2023, arXiv:2310.06825).

    >>> str(mistral(4))
    'causal & window(3, 0)'
    """
    return causal & window_(whole("a sliding window", window, 1) - 1, 0)


def gemma(layers: int = 26, window: int = 4096, every: int = 2) -> Pattern:
    """Gemma's mixture of layers: sliding windows, and full attention in every second (Gemma 2) or sixth (Gemma 3).

    Predicate: `j <= i`, and `i - j < window` unless `(layer + 1) % every == 0`. Gemma 3 is
    `gemma(window=1024, every=6)`, or window 512 in its 1B model.

    Source: Gemma 2 (arXiv:2408.00118) and Gemma 3 (arXiv:2503.19786) with Hugging Face's `layer_types`.

    >>> str(gemma(layers=2, window=8))
    'layers({0: causal & window(7, 0), 1: causal})'
    """
    return _every("gemma", layers, mistral(window), every)


def llama4(layers: int = 48, size: int = 8192, every: int = 4) -> Pattern:
    """Llama 4's mixture of layers: chunks, and full attention in every fourth.

    Predicate: `j <= i`, and `i // size == j // size` unless `(layer + 1) % every == 0`.

    Source: Hugging Face's Llama 4 configuration, `attention_chunk_size=size` and `no_rope_layers`.

    >>> str(llama4(layers=4, size=8).resolve(layer=0))
    'causal & chunk(8)'
    """
    return _every("llama4", layers, causal & chunk(size), every)


def prefix_lm(n: int = 128) -> Pattern:
    """Prefix language model: the first `n` tokens are seen in both directions, the others causally.

    Predicate: `j <= i` or `j < n`.

    Source: T5 (Raffel et al. 2020, arXiv:1910.10683).

    >>> str(prefix_lm(16))
    'causal | prefix(16)'
    """
    return causal | prefix(n)


def logsparse(window: int = 1, levels: int = 20) -> Pattern:
    """LogSparse Transformer: the last `window` tokens, and those at distances 1, 2, 4, ... before the query.

    Predicate: `0 <= i - j < window`, or `i - j = 2 ** l` for an `l < levels`.

    Source: Li et al. 2019 (arXiv:1907.00235).

    >>> str(logsparse(levels=4))
    'slash((range(0, 3), 4, 8))'
    """
    near = range(whole("logsparse's window", window, 1))
    return slash((near, *(2**level for level in range(whole("logsparse's levels", levels, 0, 30)))))


def _every(preset: str, layers: int, local: Pattern, every: int) -> Pattern:
    count, step = whole(f"{preset}'s layers", layers, 1, 65536), whole(f"{preset}'s every", every, 1, 65536)
    if step > 256:
        raise StudioError(f"{preset}'s every must not exceed 256, got {step}")
    spans = {range(n, count, step): causal if n == step - 1 else local for n in range(min(step, count))}
    return layers_(spans)
