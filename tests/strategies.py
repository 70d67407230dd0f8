"""Hypothesis strategies: random patterns of every primitive and operator, problems and blocks."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st

import pattern_studio as ps

settings.register_profile("patient", deadline=None)  # a busy machine is no failure
settings.load_profile("patient")

small = st.integers(0, 12)
size = st.integers(1, 9)


@st.composite
def ranges(draw, limit: int = 40) -> range:
    start = draw(st.integers(0, limit))
    return range(start, start + draw(st.integers(0, limit)))


positions = st.lists(st.one_of(st.integers(0, 40), ranges()), max_size=4).map(tuple)


@st.composite
def grids(draw) -> ps.grid:
    """One to three dimensions of at most 50 cells in all, in every token order."""
    dims = draw(st.integers(1, 3))
    sizes = {name: draw(st.integers(1, (50, 7, 4)[dims - 1])) for name in ("t", "h", "w")[3 - dims :]}
    order = draw(st.sampled_from(["rows", "tiles", "morton"]))
    tile = tuple(draw(st.integers(1, 5)) for _ in sizes) if order == "tiles" else None
    return ps.grid(**sizes, tile=tile, morton=order == "morton")


@st.composite
def neighborhoods(draw) -> ps.Pattern:
    grid = draw(grids())
    kernel = [draw(st.integers(1, min(n, 6))) for n in grid.sizes]
    stride = [draw(st.integers(1, k)) for k in kernel]
    dilation = [draw(st.integers(1, n // k)) for n, k in zip(grid.sizes, kernel, strict=True)]
    return ps.neighborhood(
        grid,
        kernel=kernel,
        stride=draw(st.sampled_from([1, stride])),
        dilation=draw(st.sampled_from([1, dilation])),
        causal=[draw(st.booleans()) for _ in kernel],
    )


@st.composite
def tile_windows(draw) -> ps.Pattern:
    grid = draw(grids())
    tile = [draw(st.integers(1, min(n, 5))) for n in grid.sizes]
    shift = [draw(st.integers(0, t - 1)) for t in tile]
    window = [draw(st.integers(1, n // t)) for n, t in zip(grid.sizes, tile, strict=True)]
    return ps.tile_window(grid, tile=tile, window=window, shift=draw(st.sampled_from([0, shift])))


@st.composite
def axials(draw) -> ps.Pattern:
    grid = draw(grids())
    return ps.axial(grid, axes=draw(st.one_of(st.none(), st.sampled_from(range(len(grid.sizes))))))


on_grids = st.one_of(neighborhoods(), tile_windows(), axials())
scales = st.lists(st.tuples(st.integers(1, 30), st.integers(1, 7)), min_size=1, max_size=3)
units = st.one_of(st.integers(1, 9), st.just(ps.block))

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
        units,
        small,
        st.booleans(),
    ),
    st.builds(ps.prefix, small),
    st.builds(ps.vertical, positions),
    st.integers(1, 20).flatmap(
        lambda n: st.builds(ps.comb, st.just(n), st.lists(st.integers(0, n - 1), max_size=4).map(tuple))
    ),
    st.builds(ps.slash, st.one_of(positions, st.builds(range, small, st.integers(0, 60), st.integers(1, 20)))),
    st.builds(lambda levels, offset: ps.longnet(*zip(*levels, strict=True), offset=offset), scales, small),
    st.builds(ps.hierarchical, scales),
    st.builds(ps.radial, st.integers(1, 20)),
    st.builds(lambda unit, levels: ps.butterfly(unit=unit, levels=levels), units, st.sampled_from([0, 1, 3, 31])),
    st.builds(lambda d, unit, seed: ps.expander(2 * d, unit=unit, seed=seed), st.integers(1, 2), units, small),
    on_grids,
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
