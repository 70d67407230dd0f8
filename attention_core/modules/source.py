"""PatternSource: where a module's plans come from: a pattern or a budget, a block, a cache."""

from __future__ import annotations

import itertools
import weakref
from dataclasses import dataclass, replace
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch

import pattern_studio as ps
from pattern_studio.errors import StudioError
from pattern_studio.layout import BlockLayout
from pattern_studio.problem import Problem, block_shape, whole

from ..plan import Plan, plan
from .conditions import Item
from .plan_cache import SHARED, PlanCache, PlanKey
from .stack import stacked


@runtime_checkable
class ByProblem(Protocol):
    """Something that chooses a pattern and a block when it is told the problem, always the same ones."""

    @property
    def hash(self) -> str:
        """Content hash: equal where the choices are."""
        ...

    def choose(self, problem: Problem, causal: bool) -> tuple[ps.Pattern, tuple[int, int]]:
        """The pattern and the block for one problem."""
        ...


@dataclass(frozen=True)
class _Choice:
    """What is swapped as one when a module's pattern changes, so that no call sees half of a change."""

    given: ps.Pattern | ByProblem
    hash: str
    has_docs: bool


class PatternSource:
    """Makes the plan for a call, or finds it in its cache.

    `pattern` is a Pattern, its text, or what chooses one by problem (SparsePatternConfig); `block` is
    one number or (block_q, block_k) in tokens, ignored where the choice brings its own; `layer` is
    needed by patterns that differ by layer. `cache` defaults to one that all modules of the process
    share. Raises StudioError for anything else.
    """

    def __init__(
        self,
        pattern: str | ps.Pattern | ByProblem,
        *,
        block: int | tuple[int, int] = 128,
        layer: int | None = None,
        cache: PlanCache | None = None,
    ) -> None:
        self.block = block_shape(block)
        self.layer = None if layer is None else whole("layer", layer, 0)
        self._cache = cache
        self._latest: weakref.ref[Plan] | None = None
        self.change(pattern)
        self._enlist()

    def change(self, pattern: str | ps.Pattern | ByProblem) -> None:
        """Use another pattern from the next call on."""
        given = ps.parse(pattern) if isinstance(pattern, str) else pattern
        if not isinstance(given, (ps.Pattern, ByProblem)):
            raise StudioError(
                f"pattern must be a Pattern, its text or a SparsePatternConfig, got {type(pattern).__name__}; "
                'such as pattern="causal & window(255, 0)"'
            )
        self._choice = _Choice(given, given.hash, isinstance(given, ps.Pattern) and _mentions_docs(given))

    @property
    def given(self) -> ps.Pattern | ByProblem:
        """The pattern, or what chooses it."""
        return self._choice.given

    @property
    def cache(self) -> PlanCache:
        """Where plans are kept."""
        return SHARED if self._cache is None else self._cache

    def plan(
        self, problem: Problem, items: tuple[Item, ...], *, causal: bool, extra: int, device: torch.device
    ) -> Plan:
        """The plan for a call; several items become heads one after another (stack.py).

        `problem` counts the `extra` last keys, which every query sees whatever the pattern says.
        """
        choice = self._choice
        key = PlanKey(choice.hash, self.layer, problem, causal, extra, self.block, items, str(device))

        def make() -> Plan:
            distinct = list(dict.fromkeys(items))
            layouts = [
                self.cache.layout(
                    (choice.hash, self.layer, problem, causal, extra, self.block, item),
                    lambda item=item: self._lowered(choice, problem, item, causal, extra),
                )
                for item in distinct
            ]
            if len(items) == 1:
                return plan(layouts[0], device)
            return plan(stacked(layouts, [distinct.index(item) for item in items]), device)

        made = self.cache.plan(key, make)
        self._latest = weakref.ref(made)
        return made

    @property
    def latest(self) -> Plan | None:
        """The plan of the last call, None before one and where the cache has dropped it."""
        return None if self._latest is None else self._latest()

    def _lowered(self, choice: _Choice, problem: Problem, item: Item, causal: bool, extra: int) -> BlockLayout:
        kv_len, block = problem.kv_len - extra, self.block
        if isinstance(choice.given, ps.Pattern):
            pattern = choice.given
        else:
            own = Problem(problem.q_len, kv_len, problem.offset, problem.heads)
            pattern, block = choice.given.choose(own, causal)
        pattern = pattern & ps.causal if causal else pattern
        if item.docs is not None:
            pattern = pattern if choice.has_docs else pattern.within(ps.docs)
            problem = replace(problem, docs=(*item.docs, extra) if extra else item.docs)
        if item.keys is not None:
            pattern = pattern & ps.vertical(tuple(range(a, b) for a, b in item.keys)) if item.keys else ps.empty
        if extra:
            pattern = pattern & ps.sink(kv_len) | ps.vertical((range(kv_len, problem.kv_len),))
        layout = ps.lower(pattern, problem, block=block, layer=self.layer)
        if item.mask is not None:
            layout = _masked(layout, np.pad(item.mask.table, ((0, 0), (0, 0), (0, extra)), constant_values=True))
        return replace(layout, problem=replace(problem, docs=None))

    def _enlist(self) -> None:
        self.number = next(_numbers)
        _sources[self.number] = self

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name not in ("number", "_latest")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _latest=None)
        self._enlist()


_numbers = itertools.count()
_sources: weakref.WeakValueDictionary[int, PatternSource] = weakref.WeakValueDictionary()


def source_of(number: int) -> PatternSource:
    """The living source with this number: how a compiled graph names it."""
    return _sources[number]


def _mentions_docs(pattern: ps.Pattern) -> bool:
    kinds = (type(ps.docs), type(ps.dense.within(ps.docs)))
    return isinstance(pattern, kinds) or any(_mentions_docs(part) for part in pattern.parts())


def _masked(layout: BlockLayout, table: np.ndarray) -> BlockLayout:
    """The layout's pairs that a token mask [heads or 1, q_len, kv_len] allows too."""
    problem = layout.problem
    kept: dict[tuple[int, int], int] = {}  # heads with one layout and one mask share a group
    which = [kept.setdefault((int(layout.head_group[h]), h % len(table)), len(kept)) for h in range(problem.heads)]
    firsts = [which.index(n) for n in range(len(kept))]
    masks = np.stack([layout.expand(h) & table[h % len(table)] for h in firsts])
    alone = ps.from_mask(masks, replace(problem, heads=len(firsts), docs=None), layout.block)
    return replace(alone, problem=problem, head_group=np.array(which, np.int32))
