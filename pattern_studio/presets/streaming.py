"""Sinks and recent tokens, and what MInference makes of them."""

from __future__ import annotations

from ..expr import Pattern
from ..patterns import PRIMITIVES
from ..problem import whole

causal, sink, slash, vertical, window = (PRIMITIVES[word] for word in ("causal", "sink", "slash", "vertical", "window"))


def streaming_llm(sinks: int = 4, recent: int = 1020) -> Pattern:
    """StreamingLLM: the first tokens as attention sinks, and the most recent ones, the query included.

    Predicate: `j <= i`, and `j < sinks` or `i - j < recent`. The paper counts positions in its cache;
    a pattern counts them in the text, which decides the same pairs.

    Source: StreamingLLM (Xiao et al. 2023, arXiv:2309.17453).

    >>> str(streaming_llm())
    'causal & (sink(4) | window(1019, 0))'
    """
    return causal & (sink(sinks) | window(whole("streaming_llm's recent", recent, 1) - 1, 0))


def a_shape(sinks: int = 1024, recent: int = 4096) -> Pattern:
    """MInference's A-shape heads: StreamingLLM's pattern with many more sinks.

    Predicate: `j <= i`, and `j < sinks` or `i - j < recent`.

    Source: MInference (Jiang et al. 2024, arXiv:2407.02490).

    >>> str(a_shape(sinks=64, recent=512))
    'causal & (sink(64) | window(511, 0))'
    """
    return causal & (sink(sinks) | window(whole("a_shape's recent", recent, 1) - 1, 0))


def vertical_slash(
    cols: tuple[int | range, ...] = (range(30),), offsets: tuple[int | range, ...] = (range(1024),)
) -> Pattern:
    """MInference's vertical-slash heads: chosen keys and chosen distances.

    Predicate: `j <= i`, and `j in cols` or `i - j in offsets`. The paper finds both lists anew for every
    prompt; here they are given, for example from a capture.

    Source: MInference (Jiang et al. 2024, arXiv:2407.02490).

    >>> str(vertical_slash(cols=(0, 7), offsets=(0, 64)))
    'causal & (vertical((0, 7)) | slash((0, 64)))'
    """
    return causal & (vertical(cols) | slash(offsets))
