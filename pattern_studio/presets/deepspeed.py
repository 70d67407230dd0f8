"""DeepSpeed's sparse attention layouts, from its sparsity_config.py.

DeepSpeed decides causality by blocks, which lets a query see later tokens of its own block; here
`causal=True` decides it by positions.
"""

from __future__ import annotations

from functools import reduce
from itertools import accumulate
from operator import or_

from ..errors import StudioError
from ..expr import Pattern
from ..patterns import PRIMITIVES
from ..problem import MAX_LENGTH, whole
from ..spans import positions, spans
from .blockwise import block_window

causal_, chunk, comb, globals_, heads_, random, rect = (
    PRIMITIVES[word] for word in ("causal", "chunk", "comb", "globals", "heads", "random", "rect")
)


def deepspeed_fixed(
    block: int = 16,
    local_blocks: int = 4,
    global_blocks: int = 1,
    causal: bool = False,
    horizontal: bool = False,
    heads: int = 1,
    global_patterns: int = 1,
) -> Pattern:
    """DeepSpeed's Fixed: windows of blocks, of which the last blocks are seen by all.

    Predicate, with `n = block * local_blocks`: `i // n == j // n`, or `j % n` lies in the window's last
    `global_blocks` blocks; with `horizontal`, also where `i % n` does. With `global_patterns=p` the
    head h takes the blocks `h % p` times further forward. A window that the sequence cuts short has
    global blocks only as far as it goes.

    Source: DeepSpeed's sparsity_config.py.

    >>> str(deepspeed_fixed(block=2, local_blocks=3, causal=True))
    'causal & (chunk(6) | comb(6, (range(4, 6),)))'
    """
    size, count = whole("deepspeed_fixed's block", block, 1), whole("deepspeed_fixed's heads", heads, 1, 65536)
    n = size * whole("deepspeed_fixed's local_blocks", local_blocks, 1)
    step = size * whole("deepspeed_fixed's global_blocks", global_blocks, 1, local_blocks)
    kinds = whole("deepspeed_fixed's global_patterns", global_patterns, 1, n // step)

    def head(h: int) -> Pattern:
        chosen = comb(n, range(n - (h + 1) * step, n - h * step))
        return _directed(chunk(n) | chosen | chosen.T if horizontal else chunk(n) | chosen, causal)

    if kinds == 1:
        return head(0)
    return heads_({range(h, count, kinds): head(h) for h in range(min(kinds, count))})


def deepspeed_variable(
    block: int = 16,
    local_blocks: tuple[int, ...] = (4,),
    global_indices: tuple[int | range, ...] = (0,),
    random_blocks: int = 0,
    causal: bool = False,
    horizontal: bool = False,
    seed: int = 0,
) -> Pattern:
    """DeepSpeed's Variable: windows of given sizes, chosen global blocks, random blocks.

    Predicate: `i` and `j` lie in one window (the sizes in turn, the last one again and again), or
    `j // block` is one of `global_indices` (with `horizontal` also where `i // block` is), or it is one of
    `random_blocks` drawn for `i // block`.

    Source: DeepSpeed's sparsity_config.py.

    >>> str(deepspeed_variable(block=2, local_blocks=(1, 2), global_indices=(0,)).children[0])
    'rect(range(0, 2), range(0, 2))'
    """
    size = whole("deepspeed_variable's block", block, 1)
    if not isinstance(local_blocks, (tuple, list)) or not 1 <= len(local_blocks) <= 256:
        raise StudioError("deepspeed_variable's local_blocks takes 1 to 256 window sizes, such as (4, 2, 8)")
    sizes = [size * whole("a window of deepspeed_variable", n, 1) for n in local_blocks]
    tokens = _tokens(global_indices, size)
    parts = [_windows(sizes), globals_(rows=tokens if horizontal else (), cols=tokens)]
    if random_blocks:
        parts.append(random(random_blocks, unit=size, seed=seed))
    return _directed(reduce(or_, parts), causal)


def deepspeed_longformer(
    block: int = 16,
    window_blocks: int = 3,
    global_indices: tuple[int | range, ...] = (0,),
    causal: bool = False,
) -> Pattern:
    """DeepSpeed's BSLongformer: a window of blocks, and global blocks that see all and are seen by all.

    Predicate, with `I = i // block` and `J = j // block`: `|I - J| <= window_blocks // 2`, or I or J is one
    of `global_indices`. `window_blocks` is odd.

    Source: DeepSpeed's sparsity_config.py.

    >>> str(deepspeed_longformer(block=4, window_blocks=1))
    'chunk(4) | globals(rows=(range(0, 4),), cols=(range(0, 4),))'
    """
    size = whole("deepspeed_longformer's block", block, 1)
    tokens = _tokens(global_indices, size)
    local = block_window("deepspeed_longformer", size, window_blocks)
    return _directed(local | globals_(rows=tokens, cols=tokens), causal)


def _tokens(indices: tuple[int | range, ...], size: int) -> tuple[range, ...]:
    """The tokens of some blocks."""
    chosen = spans(positions("global_indices", indices)) * size
    return tuple(range(start, stop) for start, stop in chosen.tolist())


def _windows(sizes: list[int]) -> Pattern:
    """Windows of these sizes one after another, the last size again and again."""
    repeated = chunk(sizes[-1])
    if all(n == sizes[-1] for n in sizes):
        return repeated
    ends = list(accumulate(sizes[:-1]))
    start = ends[-1]
    rest = range(start, MAX_LENGTH)
    moved = repeated if start % sizes[-1] == 0 else ((repeated >> start).T >> start).T
    listed = [rect(range(a, b), range(a, b)) for a, b in zip([0, *ends[:-1]], ends, strict=True)]
    return reduce(or_, [*listed, moved & rect(rest, rest)])


def _directed(pattern: Pattern, causal: bool) -> Pattern:
    if not isinstance(causal, bool):
        raise StudioError(f"causal must be True or False, got {causal!r}")
    return causal_ & pattern if causal else pattern
