"""PlanCache: plans by what they depend on, bounded, safe for threads."""

from __future__ import annotations

import os
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from pattern_studio.layout import BlockLayout
from pattern_studio.problem import Problem, whole

from ..plan import Plan
from .conditions import Item

V = TypeVar("V")


@dataclass(frozen=True)
class PlanKey:
    """All that a plan depends on: which pattern, for which problem, block and batch items, on which device.

    `pattern` is the content hash of the pattern's text (or of what chooses it); `items` has one entry
    where all batch items are alike, and one for each item otherwise. Two calls with equal keys get the
    same plan; lengths are part of `problem`, so a short batch has no say in what a long one gets.
    """

    pattern: str
    layer: int | None
    problem: Problem
    causal: bool
    extra: int
    block: tuple[int, int]
    items: tuple[Item, ...]
    device: str


@dataclass(frozen=True)
class CacheInfo:
    """What a cache has done: plans found, plans made, plans kept, and the most that it keeps."""

    hits: int
    misses: int
    kept: int
    size: int


class PlanCache:
    """At most `size` plans, the least recently used leave first; and the layouts that plans are made from.

    Threads may share one: a plan that several ask for at once is made once, one miss, and the others
    wait for it, which are hits. A copy, a pickle or a spawned process starts with the same bound and
    nothing kept: plans are derived, so nothing is lost but the time to make them again. A plan that
    can't be made raises for all who wait, and is tried again at the next call.

    >>> cache = PlanCache(size=2)
    >>> cache.info()
    CacheInfo(hits=0, misses=0, kept=0, size=2)
    """

    def __init__(self, size: int = 64) -> None:
        self.size = whole("a plan cache's size", size, 1)
        self._plans: _Store[Plan] = _Store(self.size)
        # A batch item's layout comes back in other company: lengths repeat, combinations of them rarely do.
        self._layouts: _Store[BlockLayout] = _Store(4 * self.size)
        _caches.add(self)

    def plan(self, key: PlanKey, make: Callable[[], Plan]) -> Plan:
        """The plan of a key, made at the first call for it."""
        return self._plans.get(key, make)

    def layout(self, key: Hashable, make: Callable[[], BlockLayout]) -> BlockLayout:
        """The layout of a key, made at the first call for it; not counted."""
        return self._layouts.get(key, make)

    def plans(self) -> list[Plan]:
        """The plans that are kept, least recently used first."""
        return self._plans.values()

    def info(self) -> CacheInfo:
        """Hits, misses, plans kept and the bound."""
        store = self._plans
        return CacheInfo(store.hits, store.misses, len(store.values()), self.size)

    def clear(self) -> None:
        """Drop all that is kept; the counts go on."""
        self._plans.clear()
        self._layouts.clear()

    def __getstate__(self) -> dict[str, Any]:
        return {"size": self.size}

    def __setstate__(self, state: dict[str, Any]) -> None:
        PlanCache.__init__(self, state["size"])


class _Store(Generic[V]):
    """The bounded map under both halves of a PlanCache."""

    def __init__(self, size: int) -> None:
        self.size, self.hits, self.misses = size, 0, 0
        self.lock = threading.Lock()
        self.entries: OrderedDict[Hashable, Future[V]] = OrderedDict()

    def get(self, key: Hashable, make: Callable[[], V]) -> V:
        with self.lock:
            entry = self.entries.get(key)
            mine = entry is None
            if entry is None:
                self.misses += 1
                entry = self.entries[key] = Future()
                while len(self.entries) > self.size:
                    self.entries.popitem(last=False)
            else:
                self.hits += 1
                self.entries.move_to_end(key)
        if mine:  # made outside the lock: others may ask for other keys meanwhile
            try:
                entry.set_result(make())
            except BaseException as error:
                with self.lock:
                    if self.entries.get(key) is entry:
                        del self.entries[key]
                entry.set_exception(error)
                raise
        return entry.result()

    def values(self) -> list[V]:
        with self.lock:
            return [e.result() for e in self.entries.values() if e.done() and e.exception() is None]

    def clear(self) -> None:
        with self.lock:
            self.entries.clear()


_caches: weakref.WeakSet[PlanCache] = weakref.WeakSet()
SHARED = PlanCache()  # what modules use unless they are given one: layers with one pattern share its plans


def _fresh_after_fork() -> None:
    """A fork copies locks that other threads hold and plans that they would have finished: start anew."""
    for cache in list(_caches):
        cache.__setstate__(cache.__getstate__())


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_fresh_after_fork)
