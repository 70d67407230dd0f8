"""The changes that the doctor tries: each makes other cases of a case, at a price.

Up to KEEPS the pairs stay the same: other blocks, heads one by one, padded tensors. Above it the pattern changes, or
the file holds more than it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, is_dataclass, replace
from math import gcd, log2

from ..expr import Pattern
from ..leaf import BlockUnit
from ..lowering import lower
from ..patterns.causal import Causal
from ..patterns.heads import Heads
from ..patterns.rect import Rect
from ..patterns.sink import Sink
from ..patterns.window import Window
from ..problem import Problem
from ._case import Case, layers_of
from ._frame import uses_block, uses_length
from ._registry import TARGETS

KEEPS = 4
BLOCKS: tuple[tuple[int, int], ...] = ((128, 128), (64, 64), (32, 32), (16, 16), (128, 64), (64, 128))


@dataclass(frozen=True)
class Change:
    """A change in words, and the cases that it makes: one, or one for each part that is then exported by itself.

    `pairs` is how many pairs more or less are attended to after it; of equally dear changes the one with fewest is
    taken.
    """

    price: int
    words: str
    cases: tuple[Case, ...]
    pairs: int = 0


Move = Callable[[Case], Iterator[Change]]


def by_layer(case: Case) -> Iterator[Change]:
    """Each layer's pattern by itself."""
    layers = layers_of(case.pattern)
    if case.layer is None and layers:
        named = ", ".join(map(str, layers))
        made = tuple(replace(case, layer=layer) for layer in layers)
        yield Change(1, f"export each layer's pattern by itself: layer={named}", made)


def pad_head_dim(case: Case) -> Iterator[Change]:
    """Zeros behind q, k and v: scores stay as they are, if the scale does."""
    allowed = TARGETS[case.to].head_dims
    if case.head_dim is None or allowed is None or case.head_dim in allowed:
        return
    wider = next((n for n in allowed if n >= case.head_dim), None)
    if wider is not None:
        words = f"pad q, k and v with zeros to head_dim {wider} and pass the scale 1/sqrt({case.head_dim})"
        yield Change(1, words, (replace(case, head_dim=wider),))


def group_heads(case: Case) -> Iterator[Change]:
    """One pattern for each KV head where its query heads agree, else k and v repeated."""
    heads, grouped = case.problem.heads, TARGETS[case.to].grouped
    if case.kv_heads in (None, heads) or grouped not in ("repeat", "maps"):
        return
    assert case.kv_heads is not None
    ratio = heads // case.kv_heads
    each = [case.pattern.resolve(head, case.layer) for head in range(heads)]
    if grouped == "maps" and all(each[head] == each[head // ratio * ratio] for head in range(heads)):
        first = each[::ratio]
        pattern = first[0] if len(set(first)) == 1 else Heads(dict(enumerate(first)))
        problem = replace(case.problem, heads=case.kv_heads)
        made = replace(case, pattern=pattern, layer=None, problem=problem, heads=case.heads[::ratio])
        yield Change(1, f"export the pattern of each of the {case.kv_heads} KV heads", (made,))
    else:
        yield Change(2, f"repeat k and v to {heads} heads", (replace(case, kv_heads=heads),))


def in_tokens(case: Case) -> Iterator[Change]:
    """`unit=block` written as the tokens that it stands for, so that other blocks leave the pattern as it is."""
    if uses_block(case.pattern) and case.block[0] == case.block[1]:
        pattern = _with_unit(case.pattern, case.block[0])
        if not uses_block(pattern):
            yield Change(1, f"write unit={case.block[0]} for unit=block", (replace(case, pattern=pattern),))


def other_block(case: Case) -> Iterator[Change]:
    """Another block size, the nearest first: common ones, and the largest that divides the lengths."""
    if uses_block(case.pattern):
        return
    common = gcd(case.problem.q_len, case.problem.kv_len)
    dividing = next((n for n in range(128, 0, -1) if common % n == 0), 1)
    near = sorted({*BLOCKS, (dividing, dividing)}, key=lambda block: (_far(block, case.block), block))
    for block in near:
        if block != case.block:
            yield Change(1, f"lower it at block {block[0]} x {block[1]}", (replace(case, block=block),))


def head_by_head(case: Case) -> Iterator[Change]:
    """Each head's pattern by itself, heads of one pattern together."""
    groups: dict[Pattern, list[int]] = {}
    for place, head in enumerate(case.heads):
        groups.setdefault(case.pattern.resolve(place, case.layer), []).append(head)
    if len(groups) > 1:
        made = tuple(
            replace(
                case,
                pattern=pattern,
                layer=None,
                heads=tuple(heads),
                problem=replace(case.problem, heads=len(heads)),
                kv_heads=case.kv_heads and len(heads),
            )
            for pattern, heads in groups.items()
        )
        shared = case.kv_heads not in (None, case.problem.heads)
        more = ", with k and v repeated for their heads" if shared else ""
        yield Change(2, f"export the {len(groups)} different head patterns one by one{more}", made)


def whole_prompt(case: Case) -> Iterator[Change]:
    """All queries instead of the last ones, whose rows are then taken."""
    problem = case.problem
    if 0 < problem.q_len < problem.kv_len and problem.offset == problem.kv_len - problem.q_len:
        longer = replace(problem, q_len=problem.kv_len, q_offset=0)
        rows = range(case.rows.start + problem.offset, case.rows.stop + problem.offset)
        words = f"give all {problem.kv_len} queries and take the last {problem.q_len} rows"
        yield Change(3, words, (replace(case, problem=longer, rows=rows),))


def padded(case: Case) -> Iterator[Change]:
    """Longer sequences whose added keys nobody sees and whose added rows are dropped."""
    problem = case.problem
    if not problem.q_len or not problem.kv_len or uses_length(case.pattern):
        return
    for size in dict.fromkeys((*case.block, 128)):
        q_len, kv_len = (-(-n // size) * size for n in (problem.q_len, problem.kv_len))
        if (q_len, kv_len) == (problem.q_len, problem.kv_len):
            continue
        docs = None if problem.docs is None else (*problem.docs, kv_len - problem.kv_len)
        longer = Problem(q_len, kv_len, problem.offset, problem.heads, docs)
        pattern = case.pattern
        # Added rows may see added keys: a row without any key is more than some targets take.
        stop = max(problem.offset + problem.q_len, 0)
        seen = Sink(problem.kv_len) | Rect(range(stop, stop + q_len), range(problem.kv_len, kv_len))
        guard = ""
        if kv_len > problem.kv_len and lower(pattern - seen, longer, block=case.block, layer=case.layer).pairs:
            pattern, guard = pattern & seen, ", whose keys the pattern leaves out"
        words = f"pad q, k and v to {q_len} queries and {kv_len} keys{guard}"
        yield Change(3, words, (replace(case, problem=longer, pattern=pattern),))


def made_causal(case: Case) -> Iterator[Change]:
    """Without the pairs after the query."""
    later = lower(case.pattern - Causal(), case.problem, block=case.block, layer=case.layer).pairs
    if later:
        words = f"take `causal &` the pattern, which drops {later:,} pairs with a later key"
        yield Change(KEEPS + 1, words, (replace(case, pattern=Causal() & case.pattern),), later)


def rows_filled(case: Case) -> Iterator[Change]:
    """The query itself for rows without a key."""
    layout = lower(case.pattern, case.problem, block=case.block, layer=case.layer)
    if layout.empty_rows:
        pattern = case.pattern | Window(0, 0)
        words = f"add `| window(0, 0)`: each query sees itself, {layout.empty_rows:,} saw nothing"
        yield Change(KEEPS + 1, words, (replace(case, pattern=pattern),), layout.empty_rows)


def covered(case: Case) -> Iterator[Change]:
    """The pairs that the file adds, agreed to."""
    fidelity = case.fidelity()
    if fidelity.kind == "cover":
        words = "take the cover (allow='cover') and mask the added pairs yourself"
        yield Change(KEEPS + 2, words, (replace(case, allow="cover"),), fidelity.pairs)


KEEPING: tuple[Move, ...] = (in_tokens, other_block, head_by_head, whole_prompt, padded)
# What is wrong -> what may help.
REMEDIES: dict[str, tuple[Move, ...]] = {
    "layer": (by_layer,),
    "head_dim": (pad_head_dim,),
    "kv_heads": (group_heads,),
    "cover": (*KEEPING, covered),
    "lossy": KEEPING,
    "unsupported": (*KEEPING, made_causal, rows_filled),
}


def _far(block: tuple[int, int], other: tuple[int, int]) -> float:
    return sum(abs(log2(a / b)) for a, b in zip(block, other, strict=True))


def _with_unit(pattern: Pattern, tokens: int) -> Pattern:
    """The pattern with `tokens` for every `unit=block`."""
    if is_dataclass(pattern):
        given = [f.name for f in fields(pattern) if isinstance(getattr(pattern, f.name), BlockUnit)]
        if given:
            return replace(pattern, **dict.fromkeys(given, tokens))  # type: ignore[type-var]
    return pattern.rebuilt(lambda part: _with_unit(part, tokens)) if pattern.parts() else pattern
