"""LongNet (Ding et al. 2023, arXiv:2307.02486)."""

from __future__ import annotations

from ..expr import Pattern
from ..patterns import PRIMITIVES
from ..problem import whole


def longnet_heads(
    heads: int = 12,
    segments: tuple[int, ...] = (2048, 4096, 8192, 16384, 32768),
    rates: tuple[int, ...] = (1, 2, 4, 6, 12),
) -> Pattern:
    """LongNet's dilated attention, causal, each head one place further: what one head skips another sees.

    Predicate of head h: `j <= i` and that of `longnet(segments, rates, offset=h)`. The defaults are the
    segment lengths and dilations of the paper's language model.

    Source: LongNet (Ding et al. 2023, arXiv:2307.02486).

    >>> str(longnet_heads(2, (4, 8), (1, 2)).resolve(1))
    'causal & longnet((4, 8), (1, 2), offset=1)'
    """
    count = whole("longnet_heads' heads", heads, 1, 65536)
    causal, longnet, each = (PRIMITIVES[word] for word in ("causal", "longnet", "heads"))
    return each({h: causal & longnet(segments, rates, offset=h) for h in range(count)})
