"""Case: one export as the doctor sees it, with the tensors that will be attended over, and what it says of it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ..assignment import Assignment
from ..expr import Pattern
from ..problem import Problem
from ._frame import Export, Fidelity
from ._registry import TARGETS, check, export


@dataclass(frozen=True)
class Case:
    """What is to be exported, and for which tensors.

    `head_dim` and `kv_heads` are those of q, k and v, None where they do not matter. Of what the doctor was asked
    about, `heads` says which query head each head of this export stands for, and `rows` which rows of its output are
    wanted.
    `allow` is the inexact fidelity that was agreed to, or nothing. Heads of one pattern are looked at once, unless
    `each_head`: files for many heads are large, and the doctor looks at dozens.
    """

    pattern: Pattern
    problem: Problem
    block: tuple[int, int]
    to: str
    layer: int | None
    head_dim: int | None
    kv_heads: int | None
    heads: tuple[int, ...]
    rows: range
    allow: str = ""
    each_head: bool = False

    def export(self) -> Export:
        """Write it; raises StudioError where the target can't hold it."""
        return export(self.pattern, self.problem, self.block, self.to, layer=self.layer, allow=self.allow or ())

    def fidelity(self) -> Fidelity:
        """How faithfully the target holds it."""
        heads = self.problem.heads
        if self.each_head or len({self.pattern.resolve(head, self.layer) for head in range(heads)}) > 1:
            return check(self.pattern, self.problem, self.block, self.to, layer=self.layer)
        alone = replace(self.problem, heads=1)
        found = check(self.pattern.resolve(0, self.layer), alone, self.block, self.to)
        return replace(found, pairs=found.pairs * heads)


def layers_of(pattern: Pattern) -> list[int]:
    """One layer for each different pattern of a pattern that differs by layer, else nothing."""
    found: dict[Pattern, int] = {}
    for node in _nodes(pattern):
        if isinstance(node, Assignment) and node.unit == "layer":
            for span, _ in node.cases:
                at = span if isinstance(span, int) else span.start
                found.setdefault(pattern.resolve(layer=at), at)
    return sorted(found.values())


def refusal(case: Case) -> tuple[str, str]:
    """What is wrong first, as (what it is about, why), or two empty texts where the export is as agreed.

    About is one of layer, head_dim, kv_heads, cover, lossy, unsupported.
    """
    target, heads = TARGETS[case.to], case.problem.heads
    if case.layer is None and layers_of(case.pattern):
        return "layer", "the pattern differs by layer, and a file holds one"
    if case.head_dim is not None and target.head_dims is not None and case.head_dim not in target.head_dims:
        return "head_dim", f"it takes head dimensions {told(target.head_dims)}, got {case.head_dim}"
    if case.kv_heads is not None and case.kv_heads != heads and target.grouped in ("repeat", "maps"):
        why = "it takes as many KV heads as query heads" if target.grouped == "repeat" else "its maps are by KV head"
        return "kv_heads", f"{why}, got {heads} query heads on {case.kv_heads} KV heads"
    fidelity = case.fidelity()
    if fidelity.kind in ("exact", case.allow):
        return "", ""
    verb = "adds" if fidelity.kind == "cover" else "drops"
    return fidelity.kind, fidelity.reason or f"it {verb} {fidelity.pairs:,} pairs"


def told(head_dims: range | tuple[int, ...]) -> str:
    """The head dimensions in words.

    >>> told((64, 128)), told(range(8, 129, 8)), told(range(16, 2**16))
    ('64 or 128', 'from 8 to 128 in steps of 8', 'from 16 on')
    """
    if isinstance(head_dims, tuple):
        return " or ".join(map(str, head_dims))
    steps = f" in steps of {head_dims.step}" if head_dims.step > 1 else ""
    return f"from {head_dims[0]}{f' to {head_dims[-1]}' if head_dims[-1] < 2**15 else ' on'}{steps}"


def _nodes(pattern: Pattern):
    yield pattern
    for part in pattern.parts():
        yield from _nodes(part)
