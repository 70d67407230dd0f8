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


def logsparse(window: int = 1, levels: int = 20, restart: int = 0, times: int = 1) -> Pattern:
    """LogSparse Transformer: the last `window` tokens, then keys that lie 1, 2, 4, ... before that window.

    Predicate: `d = i - j` with `0 <= d < window`, or `d = window - 1 + 2 ** l` for an `l < levels`; of one token that
    is the paper's own set, the query and those 1, 2, 4, ... before it. With `restart` the same is seen again from
    `restart` tokens before, `times` in all, and no step is longer than `restart`.

    The paper's default, local and restart attention over subsequences of `s` tokens, is `window = levels =
    ceil(log2(s))`, `restart = s`, `times = length // s`. The authors' code then lets rows near the start see all
    before them, which depends on the length and is left out here.

    Source: Li et al. 2019 (arXiv:1907.00235); the authors' mask as kept in AIStream-Peelout/flow-forecast, 3ef2bbf.

    >>> str(logsparse(levels=4))
    'slash((range(0, 3), 4, 8))'
    >>> str(logsparse(window=4, levels=4, restart=16, times=2))
    'slash((range(0, 6), 7, 11, range(16, 22), 23, 27))'
    """
    near = whole("logsparse's window", window, 1)
    steps = [near - 1 + 2**level for level in range(whole("logsparse's levels", levels, 0, 30))]
    again = whole("logsparse's restart", restart, 0, 2**30)
    if whole("logsparse's times", times, 1, 65536) > 1 and not again:
        raise StudioError(
            f"logsparse's times count subsequences, got times={times} without restart; give restart=, the tokens of one"
        )
    if again:
        if near > again:
            raise StudioError(f"logsparse's window must not exceed its restart {again}, got {near}")
        steps = [step for step in steps if step <= again]
    starts = [turn * again for turn in range(times)]
    return slash((*(range(start, start + near) for start in starts), *(a + b for a in starts for b in steps)))


def _every(preset: str, layers: int, local: Pattern, every: int) -> Pattern:
    count, step = whole(f"{preset}'s layers", layers, 1, 65536), whole(f"{preset}'s every", every, 1, 65536)
    if step > 256:
        raise StudioError(f"{preset}'s every must not exceed 256, got {step}")
    spans = {range(n, count, step): causal if n == step - 1 else local for n in range(min(step, count))}
    return layers_(spans)
