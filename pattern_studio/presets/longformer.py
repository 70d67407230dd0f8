"""Longformer (Beltagy, Peters and Cohan 2020, arXiv:2004.05150)."""

from __future__ import annotations

from ..errors import StudioError
from ..expr import Pattern
from ..patterns import PRIMITIVES
from ..problem import whole

window_, dilated, globals_, heads_ = (PRIMITIVES[word] for word in ("window", "dilated", "globals", "heads"))


def longformer(window: int = 513, global_tokens: tuple[int | range, ...] = (0,)) -> Pattern:
    """Longformer: a window around every token, and global tokens that see all and are seen by all.

    `window` counts the keys of a query, itself included, so it is odd: the paper's w = 512, which is
    Hugging Face's `attention_window=512`, is 513 here.

    Predicate: `|i - j| <= window // 2`, or `i` or `j` is one of `global_tokens`.

    Source: Longformer (Beltagy et al. 2020, arXiv:2004.05150).

    >>> str(longformer(window=511))
    'window(255, 255) | globals(rows=(0,), cols=(0,))'
    """
    half = _half(window)
    return window_(half, half) | globals_(rows=global_tokens, cols=global_tokens)


def longformer_dilated(
    window: int = 513,
    rate: int = 2,
    heads: int = 12,
    dilated_heads: int = 2,
    global_tokens: tuple[int | range, ...] = (0,),
) -> Pattern:
    """Longformer's upper layers: the last `dilated_heads` heads look twice as far, at every second key.

    Predicate of those heads: `j = i + k * rate` for `|k| <= window // 2`, or `i` or `j` is global; of the
    others: that of `longformer`.

    Source: Longformer (Beltagy et al. 2020, arXiv:2004.05150).

    >>> str(longformer_dilated(window=5, heads=3, dilated_heads=1, global_tokens=()).resolve(2))
    'dilated(2, 2, rate=2) | globals()'
    """
    half, count = _half(window), whole("longformer_dilated's heads", heads, 1, 65536)
    plain = count - whole("longformer_dilated's dilated_heads", dilated_heads, 0, count)
    everywhere = globals_(rows=global_tokens, cols=global_tokens)
    kinds = {range(plain): window_(half, half), range(plain, count): dilated(half, half, rate=rate)}
    return heads_({span: pattern | everywhere for span, pattern in kinds.items() if len(span)})


def _half(window: int) -> int:
    if whole("longformer's window", window, 1) % 2 == 0:
        raise StudioError(
            f"longformer's window counts the query itself and is odd, got {window}; "
            f"Hugging Face's attention_window={window} is window={window + 1}"
        )
    return window // 2
