"""global_local: global tokens and a window as wide as the budget allows."""

from __future__ import annotations

from ..patterns import PRIMITIVES
from ..problem import Problem, whole
from .budget import Budget, Generated, spend
from .local_window import LocalWindow

globals_ = PRIMITIVES["globals"]


def global_local(
    density: float,
    problem: Problem,
    block: int | tuple[int, int] = 128,
    *,
    causal: bool = True,
    of: str | None = None,
    global_tokens: int = 64,
) -> Generated:
    """The first `global_tokens` see and are seen by all; the others also have a window, as wide as is paid for.

    Under `causal` the global tokens see what is before them. Budget, errors and guarantees are those
    of `local_window`; the global rows and columns are always kept.

    Source: Longformer (Beltagy et al. 2020), ETC (Ainslie et al. 2020).

    >>> print(global_local(0.25, Problem(4096), block=128).pattern)
    causal & (globals(rows=(range(0, 64),), cols=(range(0, 64),)) | window(256, 0))
    """
    budget = Budget.checked(density, problem, block, causal, of)
    first = range(whole("global_tokens", global_tokens, 1))
    return spend("global_local", budget, lambda b: LocalWindow(b, (globals_(rows=(first,), cols=(first,)),)))
