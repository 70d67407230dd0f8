"""Density by distance in a mesh of devices: dense at home, thinner in the node, thinnest across nodes."""

from __future__ import annotations

import math

from ..errors import StudioError
from ..expr import Pattern
from ..patterns import PRIMITIVES
from ..problem import whole

causal, chunk, comb = (PRIMITIVES[word] for word in ("causal", "chunk", "comb"))


def mesh_levels(
    device: int = 16384,
    node: int = 131072,
    keep: tuple[int, int, int] = (10, 4, 1),
    out_of: int = 20,
    unit: int = 128,
) -> Pattern:
    """Causal attention whose density falls with the link that its keys cross.

    A device holds `device` tokens in a row, a node `node` of them. Of every `out_of` units of `unit`
    keys a query sees `keep[0]` on its own device, `keep[1]` in its node and `keep[2]` beyond, and its
    own unit always. All queries see the same units, spread evenly, so that what crosses a link is
    that share of its keys, and a smaller `keep` is part of a larger one.

    Predicate: `j <= i`, and `i // unit == j // unit` or `j // unit * step^-1 % out_of < keep[level]`, where
    the level is 0 for `i // device == j // device`, else 1 for `i // node == j // node`, else 2, and
    `step` is the number prime to `out_of` that is nearest to its golden section.

    Source: ours, for the hierarchical patterns that ring attention's guides describe without a rule.

    >>> str(mesh_levels(device=4, node=8, keep=(2, 1, 1), out_of=2, unit=1))
    'causal & (chunk(1) | chunk(4) | chunk(8) & comb(2, (0,)) | comb(2, (0,)))'
    """
    whole("mesh_levels' unit", unit, 1)
    whole("mesh_levels' out_of", out_of, 1, 4096)
    whole("mesh_levels' node", node, whole("mesh_levels' device", device, 1))
    if not isinstance(keep, (tuple, list)) or len(keep) != 3:
        raise StudioError(f"mesh_levels' keep is (own device, own node, beyond), such as (10, 4, 1); got {keep!r}")
    for count in keep:
        whole("a number in mesh_levels' keep", count, 0, out_of)
    if not keep[0] >= keep[1] >= keep[2]:
        raise StudioError(f"mesh_levels' keep must not rise with the distance, got {tuple(keep)}")
    golden = out_of * (math.sqrt(5) - 1) / 2
    prime = [n for n in range(1, out_of + 1) if math.gcd(n, out_of) == 1]
    step = min(prime, key=lambda n: abs(n - golden))

    def kept(count: int) -> Pattern | None:
        if count == out_of:
            return None  # every key
        at = sorted(n * step % out_of for n in range(count))
        return comb(out_of * unit, tuple(range(n * unit, (n + 1) * unit) for n in at))

    allowed = chunk(unit)
    for size, count in zip((device, node, None), keep, strict=True):
        share = kept(count)
        if size is None:
            allowed = causal if share is None else allowed | share
        else:
            allowed = allowed | (chunk(size) if share is None else chunk(size) & share)
    return causal & allowed
