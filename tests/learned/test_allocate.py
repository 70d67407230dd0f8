"""Shared budgets: never exceeded, floors held, and as good as trying everything where the options are concave."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import pattern_studio as ps
from pattern_studio.learned.allocate import Option, allocate

options = st.lists(st.builds(Option, st.integers(1, 9), st.floats(0, 1)), min_size=1, max_size=4)


@given(st.lists(options, min_size=1, max_size=4), st.integers(0, 40), st.integers(0, 9))
def test_within_the_budget_and_not_far_from_the_best(parts, budget, floor):
    allowed = [[n for n, o in enumerate(p) if o.cost >= min(floor, max(o.cost for o in p))] for p in parts]
    choices = [c for c in product(*allowed) if sum(p[n].cost for p, n in zip(parts, c, strict=True)) <= budget]
    if not choices:
        with pytest.raises(ps.StudioError, match=f"a budget of {budget} tiles does not pay for the least of each of"):
            allocate(parts, budget, floor)
        return
    taken = allocate(parts, budget, floor)
    value = sum(p[n].value for p, n in zip(parts, taken, strict=True))
    assert sum(p[n].cost for p, n in zip(parts, taken, strict=True)) <= budget
    assert all(p[n].cost >= min(floor, max(o.cost for o in p)) for p, n in zip(parts, taken, strict=True))
    best = max(sum(p[n].value for p, n in zip(parts, c, strict=True)) for c in choices)
    # What greedy can miss is at most one upgrade, and no upgrade is worth more than a part's own best.
    assert value >= best - max(o.value for p in parts for o in p) - 1e-9


@example([[0.5], [0.75, 0.75, 0.95]], 2)  # 1.7 - .95 and 2.45 - 1.7 are both .75, but for their last bits
@given(st.lists(st.lists(st.floats(0.01, 1), min_size=1, max_size=4), min_size=1, max_size=4), st.integers(0, 12))
def test_concave_steps_of_one_tile_are_spent_best(gains, extra):
    """With falling gains of one tile each, the largest gains anywhere are the optimum."""
    parts = []
    for each in gains:
        falling = sorted(each, reverse=True)
        parts.append([Option(1 + n, sum(falling[:n])) for n in range(len(falling) + 1)])
    taken = allocate(parts, len(parts) + extra)
    value = sum(p[n].value for p, n in zip(parts, taken, strict=True))
    assert value == pytest.approx(sum(sorted((g for each in gains for g in each), reverse=True)[:extra]))


def test_no_option_is_an_error():
    with pytest.raises(ps.StudioError, match="part 1 has no option to choose from; give each at least one"):
        allocate([[Option(1, 0.5)], []], 10)
