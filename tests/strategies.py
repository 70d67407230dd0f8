"""Hypothesis strategies: random patterns of every primitive and operator, problems and blocks."""

from __future__ import annotations

from hypothesis import strategies as st

import pattern_studio as ps

small = st.integers(0, 12)
size = st.integers(1, 9)


@st.composite
def ranges(draw, limit: int = 40) -> range:
    start = draw(st.integers(0, limit))
    return range(start, start + draw(st.integers(0, limit)))


positions = st.lists(st.one_of(st.integers(0, 40), ranges()), max_size=4).map(tuple)

leaves = st.one_of(
    st.sampled_from([ps.dense, ps.empty, ps.causal, ps.docs]),
    st.builds(ps.window, small, small),
    st.builds(lambda left, right, rate: ps.dilated(left, right, rate=rate), small, small, st.integers(1, 20)),
    st.builds(ps.strided, st.integers(1, 20)),
    st.builds(ps.chunk, st.integers(1, 20)),
    st.builds(ps.sink, small),
    st.builds(lambda rows, cols: ps.globals(rows=rows, cols=cols), positions, positions),
    st.builds(
        lambda k, unit, seed, past: ps.random(k, unit=unit, seed=seed, past=past),
        st.integers(0, 4),
        st.one_of(st.integers(1, 9), st.just(ps.block)),
        small,
        st.booleans(),
    ),
    st.builds(ps.rect, ranges(), ranges()),
    st.builds(
        lambda bq, bk, mask: ps.blocks.from_mask(mask, (bq, bk)),
        size,
        size,
        st.integers(1, 5).flatmap(
            lambda width: st.lists(st.lists(st.booleans(), min_size=width, max_size=width), min_size=1, max_size=5)
        ),
    ),
)


def _grow(children: st.SearchStrategy[ps.Pattern]) -> st.SearchStrategy[ps.Pattern]:
    return st.one_of(
        st.builds(lambda a, b: a & b, children, children),
        st.builds(lambda a, b: a | b, children, children),
        st.builds(lambda a, b: a - b, children, children),
        st.builds(lambda a, b: a ^ b, children, children),
        st.builds(lambda a: ~a, children),
        st.builds(lambda a, k: a >> k, children, st.integers(-15, 15)),
        st.builds(lambda a: a.T, children),
    )


# `docs` inside `.within(docs)` is an error (documents do not nest), so trees with it are kept apart.
plain = st.recursive(leaves.filter(lambda p: p is not ps.docs), _grow, max_leaves=4)
trees = st.recursive(st.one_of(leaves, plain.map(lambda p: p.within(ps.docs))), _grow, max_leaves=5)


@st.composite
def patterns(draw, heads: int = 3, layers: bool = False) -> ps.Pattern:
    """A tree, or one per head of `heads`."""
    if draw(st.booleans()):
        return draw(trees)
    cut = draw(st.integers(1, heads - 1))
    assigned = ps.heads({range(0, cut): draw(trees), range(cut, heads): draw(trees)})
    return draw(st.sampled_from([assigned, ps.causal & assigned, ~assigned.T]))


@st.composite
def problems(draw, heads: int = 3, longest: int = 70) -> ps.Problem:
    """Lengths, offset and documents, every one of them possibly odd, zero or misaligned."""
    q_len, kv_len = draw(st.integers(0, longest)), draw(st.integers(0, longest))
    offset = draw(st.one_of(st.none(), st.integers(-20, 40)))
    cuts = sorted(draw(st.lists(st.integers(0, kv_len), max_size=5)))
    docs = tuple(b - a for a, b in zip([0, *cuts], [*cuts, kv_len], strict=True))
    return ps.Problem(q_len, kv_len, offset, heads, docs)


blocks = st.tuples(
    st.sampled_from([1, 2, 3, 7, 8, 16, 64]),
    st.sampled_from([1, 2, 5, 8, 16, 64]),
)
