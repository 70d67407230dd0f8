"""explain: drawn cases with their marks, and minimal, sufficient reasons on random trees."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pattern_studio as ps
from pattern_studio.explain import explain
from pattern_studio.expr import And, Not, Or, Shift, Transpose, Xor
from pattern_studio.patterns.docs import Within
from tests import strategies

PROBLEM = ps.Problem(16, heads=4, docs=(5, 11))


def reasons(text: str, i: int, j: int, **which) -> list[tuple[str, bool]]:
    found = explain(ps.parse(text), i, j, PROBLEM, **which)
    for reason in found.reasons:
        assert found.text[reason.start : reason.stop] == reason.text
    return [(reason.text, reason.allows) for reason in found.reasons]


def test_what_holds_needs_every_child_of_an_and_and_one_of_an_or():
    assert reasons("causal & (window(3, 0) | sink(9))", 8, 7) == [("causal", True), ("sink(9)", True)]
    assert reasons("causal & (dilated(9, 9, rate=2) | sink(9))", 8, 2) == [("causal", True), ("sink(9)", True)]
    assert reasons("causal | window(3, 3)", 2, 4) == [("window(3, 3)", True)]


def test_what_fails_needs_one_child_of_an_and_and_every_one_of_an_or():
    assert reasons("causal & (window(3, 0) | sink(1))", 9, 2) == [("window(3, 0)", False), ("sink(1)", False)]
    assert reasons("causal & (window(3, 0) | sink(1))", 2, 9) == [("causal", False)]


def test_negation_is_told_by_the_reason_under_it():
    found = explain(ps.parse("causal - chunk(4)"), 6, 4, PROBLEM)
    assert not found.allowed
    assert [(r.text, r.allows) for r in found.reasons] == [("chunk(4)", True)]
    assert found.reasons[0].sentence == (
        "chunk(4) allows query 6, key 4 (under ~; j - i = -2); it keeps i // size == j // size"
    )


def test_shift_and_transpose_ask_about_another_pair():
    reason = explain(ps.parse("(sink(1) >> 3).T"), 3, 9, PROBLEM).reasons[0]
    assert (reason.i, reason.j, reason.allows) == (9, 0, True)
    assert "sink(1) allows query 9, key 0 (transposed, shifted; j - i = -9)" in reason.sentence


def test_documents_are_a_reason_of_their_own():
    text = "(causal & window(2, 0)).within(docs)"
    assert reasons(text, 6, 4) == [("docs", False)]
    assert reasons(text, 6, 5) == [("causal", True), ("window(2, 0)", True), ("docs", True)]
    found = explain(ps.parse(text), 12, 5, PROBLEM)
    assert [(r.text, r.i, r.j) for r in found.reasons] == [("window(2, 0)", 7, 0)]


def test_heads_and_layers_point_at_the_case_that_is_followed():
    text = "heads({0: causal, 1: causal, range(2, 4): layers({0: dense, 1: causal})})"
    starts = [explain(ps.parse(text), 2, 4, PROBLEM, head=h, layer=1).reasons[0].start for h in range(4)]
    assert starts == [text.index("causal"), text.index("1: causal") + 3] + [text.rindex("causal")] * 2


def test_printed_with_the_places_marked():
    assert str(explain(ps.parse("causal & ~(sink(2) | chunk(4))"), 9, 1, PROBLEM, head=1)).split("\n") == [
        "query 9 does not see key 1 in head 1",
        "",
        "  causal & ~(sink(2) | chunk(4))",
        "             ^^^^^^^",
        "",
        "- sink(2) allows query 9, key 1 (under ~; j - i = -8); it keeps 0 <= j < n",
    ]


def test_plain_values_for_other_programs():
    found = explain(ps.causal, 2, 4, PROBLEM).as_dict()
    assert found["allowed"] is False
    assert found["sentence"] == "query 2 does not see key 4"
    assert found["reasons"][0]["stop"] == 6


def test_positions_are_absolute_and_errors_say_which_there_are():
    late = ps.Problem(2, 5)
    assert explain(ps.causal, 4, 4, late).allowed
    with pytest.raises(ps.StudioError, match="query position i must lie between 3 and 4, got 1"):
        explain(ps.causal, 1, 4, late)
    with pytest.raises(ps.StudioError, match="key position j must lie between 0 and 4, got 5"):
        explain(ps.causal, 4, 5, late)
    with pytest.raises(ps.StudioError, match="the head must lie between 0 and 0, got 1"):
        explain(ps.causal, 4, 4, late, head=1)
    with pytest.raises(ps.StudioError, match="differs by layer: say which one"):
        explain(ps.layers({0: ps.causal}), 4, 4, late)
    with pytest.raises(ps.StudioError, match="there is no pair to explain with q_len 0 and kv_len 4"):
        explain(ps.causal, 0, 0, ps.Problem(0, 4))
    with pytest.raises(ps.StudioError, match="takes a Pattern, got str; read text with parse"):
        explain("causal", 4, 4, late)  # type: ignore[arg-type]


def test_a_pattern_by_blocks_takes_the_block():
    text = "random(1, unit=block, seed=3)"
    answers = {
        explain(ps.parse(text), i, j, ps.Problem(16), block=4).allowed for i, j in itertools.product([0, 15], range(16))
    }
    assert answers == {True, False}


def leaves(node: ps.Pattern) -> list[ps.Pattern]:
    """Primitives in the order of the text, with the docs of `.within(docs)`."""
    own = [leaf for part in node.parts() for leaf in leaves(part)] or [node]
    return [*own, ps.docs] if isinstance(node, Within) else own


def kleene(node: ps.Pattern, known: list[bool | None]) -> bool | None:
    """The value of a tree whose leaves, taken off the front of `known`, may be unknown (None)."""
    if isinstance(node, (And, Or, Within)):
        parts = [kleene(part, known) for part in node.parts()]
        if isinstance(node, Within):
            parts.append(known.pop(0))
        turning = isinstance(node, Or)
        return turning if turning in parts else None if None in parts else not turning
    if isinstance(node, Xor):
        left, right = kleene(node.left, known), kleene(node.right, known)
        return None if left is None or right is None else left ^ right
    if isinstance(node, Not):
        value = kleene(node.child, known)
        return None if value is None else not value
    return kleene(node.child, known) if isinstance(node, (Shift, Transpose)) else known.pop(0)


@settings(max_examples=150, deadline=None)
@given(strategies.trees, strategies.problems(heads=1), strategies.blocks, st.data())
def test_the_reasons_decide_and_no_fewer_do(pattern, problem, block, data):
    if not problem.q_len or not problem.kv_len:
        return
    i = data.draw(st.integers(problem.offset, problem.offset + problem.q_len - 1))
    j = data.draw(st.integers(0, problem.kv_len - 1))
    found = explain(pattern, i, j, problem, block=block)
    assert found.allowed == ps.dense_mask(pattern, problem, block=block)[0, i - problem.offset, j]
    by_place = {reason.start: reason.allows for reason in found.reasons}
    assert len(by_place) == len(found.reasons)
    starts, after = [], 0
    for leaf in leaves(pattern):
        starts.append(found.text.index(str(leaf), after))
        after = starts[-1] + len(str(leaf))
    assert set(by_place) <= set(starts)
    known = [by_place.get(start) for start in starts]
    assert kleene(pattern, list(known)) == found.allowed
    for dropped in by_place:
        fewer = [None if start == dropped else value for start, value in zip(starts, known, strict=True)]
        assert kleene(pattern, fewer) is None
