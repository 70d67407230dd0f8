"""FlashAttention's window_size and causal."""

from __future__ import annotations

from ..errors import StudioError
from ..expr import Pattern
from ..patterns import PRIMITIVES
from ..problem import whole
from .meaning import Convention, Meaning

CAUSAL, DENSE, window = (PRIMITIVES[word] for word in ("causal", "dense", "window"))


def read_flash(left: int, right: int, causal: bool = False) -> Convention:
    """What FlashAttention's `window_size=(left, right)` and `causal` mean; -1 is an open side.

    Source: FlashAttention-2's `flash_attn_func`: query `i` sees the keys from `i - left` to
    `i + right`, both included, aligned at the bottom right; `causal=True` sets `right` to 0.

    >>> print(read_flash(3, 0))
    FlashAttention
    window_size=(3, 0) is window(3, 0): a query sees itself, 3 keys before it and 0 keys after it
    """
    left, right = whole("flash's left", left, -1), whole("flash's right", right, -1)
    if not isinstance(causal, bool):
        raise StudioError(f"flash's causal must be True or False, got {causal!r}")
    setting = f"window_size=({left}, {right})" + (", causal=True" if causal else "")
    notes = (f"causal=True sets right to 0; the {right} that was given has no effect",) if causal and right > 0 else ()
    right = 0 if causal else right
    slips: list[tuple[Pattern, str]] = []
    if left > 0:
        said = f"flash's left does not count the query itself: left={left} is window({left}, ...)"
        slips.append((_reach(left - 1, right), f"{said}; this sees {left - 1} keys before the query"))
    if left >= 0:
        said = f"flash's left is how many keys before the query are seen: left={left} is window({left}, ...)"
        slips.append((_reach(left + 1, right), f"{said}; this sees {left + 1}"))
    if right == 0:
        slips += [(_reach(left, n), "this looks ahead: no key after the query is to be seen") for n in (-1, left)]
    if right != 0:
        slips.append((_reach(left, 0), f"this does not look ahead: right={right} without causal=True does"))
    before, after = (f"{'every key' if n < 0 else f'{n} keys'}" for n in (left, right))
    sentence = f"a query sees itself, {before} before it and {after} after it"
    pattern = CAUSAL & window(left, 0) if causal and left >= 0 else _reach(left, right)
    return Convention("FlashAttention", (Meaning(setting, pattern, sentence, tuple(slips)),), notes=notes)


def _reach(left: int, right: int) -> Pattern:
    """Keys from `left` before the query to `right` after it; -1 is all."""
    if left < 0:
        return DENSE if right < 0 else CAUSAL if right == 0 else CAUSAL | window(0, right)
    return ~CAUSAL | window(left, 0) if right < 0 else window(left, right)
