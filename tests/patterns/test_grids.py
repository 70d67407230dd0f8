"""Primitives on token grids: drawn by hand, and against rules written down a second time."""

from __future__ import annotations

import itertools
import pickle

import numpy as np
import pytest
from hypothesis import given, settings

import pattern_studio as ps
from tests import strategies

from .drawing import assert_drawn

DRAWN = {
    "axial(grid(h=2, w=3))": "####.. ###.#. ###..# #..### .#.### ..####",
    "axial(grid(h=2, w=3), axes=(0,))": "#..#.. .#..#. ..#..# #..#.. .#..#. ..#..#",
    "axial(grid(h=2, w=4, tile=(2, 2)), axes=(1,))": """
        ##..##.. ##..##.. ..##..## ..##..## ##..##.. ##..##.. ..##..## ..##..##
    """,
    "axial(grid(h=2, w=4, morton=True), axes=(1,))": """
        ##..##.. ##..##.. ..##..## ..##..## ##..##.. ##..##.. ..##..## ..##..##
    """,
    "neighborhood(grid(w=5), kernel=3)": "###.. ###.. .###. ..### ..###",
    "neighborhood(grid(w=5), kernel=2)": "##... ##... .##.. ..##. ...##",
    "neighborhood(grid(w=5), kernel=3, causal=True)": "#.... ##... ###.. .###. ..###",
    "neighborhood(grid(w=6), kernel=3, dilation=2)": "#.#.#. .#.#.# #.#.#. .#.#.# #.#.#. .#.#.#",
    "neighborhood(grid(w=5), kernel=2, dilation=2)": "#.#.. .#.#. #.#.. .#.#. ..#.#",
    "neighborhood(grid(w=6), kernel=3, stride=2)": "###... ###... ..###. ..###. ...### ...###",
    "neighborhood(grid(w=6), kernel=3, stride=2, causal=True)": "#..... ##.... .##... .###.. ...##. ...###",
    "neighborhood(grid(h=3, w=3), kernel=(2, 2))": """
        ##.##.... ##.##.... .##.##... ##.##.... ##.##.... .##.##... ...##.##. ...##.##. ....##.##
    """,
    "neighborhood(grid(w=3), kernel=1)": "#.... .#... ..#.. ..... .....",
    "tile_window(grid(w=5), tile=2, window=2)": "####. ####. ####. ####. ..###",
    "tile_window(grid(w=6), tile=3, window=1, shift=1)": "#..... .###.. .###.. .###.. ....## ....##",
    "tile_window(grid(w=9), tile=2, window=3)": """
        ######... ######... ######... ######... ..######. ..######. ....##### ....##### ....#####
    """,
}


@pytest.mark.parametrize("text", DRAWN)
def test_drawn_by_hand(text):
    assert_drawn(ps.parse(text), DRAWN[text])


def cells(grid: ps.grid) -> list[tuple[int, ...]]:
    """Coordinates of each position, by a rule that is easy to read."""
    every = list(itertools.product(*map(range, grid.sizes)))
    if grid.tile is not None:
        return sorted(every, key=lambda c: (*(x // t for x, t in zip(c, grid.tile, strict=True)), *c))
    if grid.morton:
        bits = max(grid.sizes).bit_length()
        return sorted(every, key=lambda c: [x >> bit & 1 for bit in reversed(range(bits)) for x in c])
    return every


def neighbours(x: int, size: int, kernel: int, stride: int, dilation: int, causal: bool) -> set[int]:
    """The coordinates that x sees: NATTEN's rule, one query at a time."""
    group = list(range(x % dilation, size, dilation))
    at = group.index(x)
    if causal:
        leader = min(at // stride * stride + stride - 1, len(group) - 1)
        return {group[y] for y in range(max(leader - kernel + 1, 0), at + 1)}
    leader = min(at // stride * stride + stride // 2, len(group) - 1)
    centre = min(max(leader, kernel // 2), len(group) - 1 - (kernel // 2 + kernel % 2 - 1))
    return set(group[centre - kernel // 2 : centre + kernel // 2 + kernel % 2])


@settings(max_examples=150)
@given(strategies.neighborhoods())
def test_neighborhood_is_nattens_rule(pattern):
    grid, ones = pattern.grid, (1,) * len(pattern.grid.sizes)
    at = cells(grid)
    options = [pattern.kernel, pattern.stride or ones, pattern.dilation or ones, pattern.causal or (False,) * len(ones)]
    sees = [[neighbours(x, n, *o) for x in range(n)] for n, *o in zip(grid.sizes, *options, strict=True)]
    want = [[all(k in sees[d][q] for d, (q, k) in enumerate(zip(a, b, strict=True))) for b in at] for a in at]
    np.testing.assert_array_equal(ps.dense_mask(pattern, ps.Problem(grid.cells))[0], want)
    if not any(pattern.causal):
        counts = np.sum(want, 1)
        assert (counts == np.prod(pattern.kernel)).all()  # borders move the window in: none is lost


@settings(max_examples=100)
@given(strategies.tile_windows())
def test_tile_window_is_a_neighborhood_of_tiles(pattern):
    grid, shift = pattern.grid, pattern.shift or (0,) * len(pattern.grid.sizes)
    tiles = []
    for size, tile, first in zip(grid.sizes, pattern.tile, shift, strict=True):
        borders = sorted({0, *range(first, size, tile)})
        tiles.append([sum(x >= b for b in borders) - 1 for x in range(size)])
    at = [tuple(tiles[d][x] for d, x in enumerate(cell)) for cell in cells(grid)]
    sees = [
        [neighbours(a, max(t) + 1, w, 1, 1, False) for a in range(max(t) + 1)]
        for t, w in zip(tiles, pattern.window, strict=True)
    ]
    want = [[all(k in sees[d][q] for d, (q, k) in enumerate(zip(a, b, strict=True))) for b in at] for a in at]
    np.testing.assert_array_equal(ps.dense_mask(pattern, ps.Problem(grid.cells))[0], want)


@settings(max_examples=60)
@given(strategies.grids())
def test_orders_number_every_cell_once(grid):
    position = np.arange(grid.cells)
    cell = grid.coordinates(position)
    np.testing.assert_array_equal(grid.positions(cell), position)
    assert [tuple(c[3 - len(grid.sizes) :]) for c in cell.T.tolist()] == cells(grid)


def test_tile_order_makes_whole_blocks():
    """The point of sliding tiles: in tile order every tile of pairs is full or empty."""
    video = "tile_window(grid(t=4, h=8, w=8{}), tile=(2, 4, 4), window=(1, 1, 1))"
    tiled = ps.lower(ps.parse(video.format(", tile=(2, 4, 4)")), q_len=256, block=32)
    assert tiled.tiles() == tiled.tiles(ps.TileKind.FULL)
    rows = ps.lower(ps.parse(video.format("")), q_len=256, block=32)
    assert rows.pairs == tiled.pairs
    assert rows.tiles() > rows.tiles(ps.TileKind.FULL)


def test_a_long_row_is_a_band():
    near = ps.lower(ps.neighborhood(ps.grid(w=65_536), kernel=1001), q_len=65_536, block=(128, 1))
    assert len(near.rows.start) < 5 * near.q_blocks
    assert near.pairs == 65_536 * 1001


def test_a3_dilation_and_even_kernels_have_rules():
    """Neighborhood-Attention-Transformer#106, NATTEN#41: both failed inside the kernel."""
    with pytest.raises(ps.StudioError, match="kernel x dilation must fit the dimension: 5 x 16 cells of 10"):
        ps.neighborhood(ps.grid(w=10), kernel=5, dilation=16)
    even = ps.dense_mask(ps.neighborhood(ps.grid(w=10), kernel=4), ps.Problem(10))[0]
    assert np.flatnonzero(even[5]).tolist() == [3, 4, 5, 6]  # one further to the left


def test_a_grid_is_a_value():
    grid = ps.grid(t=2, h=3, w=4, tile=(1, 2, 2))
    assert repr(grid) == "grid(t=2, h=3, w=4, tile=(1, 2, 2))"
    assert grid == ps.grid(t=2, h=3, w=4, tile=[1, 2, 2])
    assert hash(grid) == hash(pickle.loads(pickle.dumps(grid)))
    assert repr(ps.grid(w=3, morton=True)) == "grid(w=3, morton=True)"
    pattern = ps.axial(grid)
    assert pickle.loads(pickle.dumps(pattern)) == pattern


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("axial(grid(t=2, w=3))", "a grid with t has h too"),
        ("axial(grid(w=0))", "grid's w must lie between 1"),
        ("axial(grid(h=2))", "missing a required argument: 'w'"),
        ("axial(grid(2, 3))", "too many positional arguments"),
        ("axial(grid(h=70000, w=70000))", "at most 67,108,864 cells, got 4,900,000,000"),
        ("axial(grid(w=4, tile=(2, 2)))", "grid's tile takes one number per dimension, 1 of them; got 2"),
        ("axial(grid(w=4, tile=(0,)))", "grid's tile must lie between 1"),
        ("axial(grid(w=4, tile=2, morton=True))", "give it tile or morton, not both"),
        ("axial(grid(w=4, morton=1))", "grid's morton must be True or False"),
        ("axial(causal)", "axial takes a grid first"),
        ("axial(grid(w=4), axes=(1,))", "an axis of axial must lie between 0 and 0"),
        ("axial(grid(w=4), axes=())", "axial needs an axis"),
        ("grid(w=4)", "makes an argument, as in axial"),
        ("grid & causal", "makes an argument, as in axial"),
        ("axial(grd(w=4))", "did you mean 'grid'"),
        ("neighborhood(grid(w=4), kernel=5)", "5 x 1 cells of 4"),
        ("neighborhood(grid(w=8), kernel=2, stride=3)", "stride must not exceed its kernel 2, got 3"),
        ("neighborhood(grid(h=8, w=8), kernel=(3, 3, 3))", "kernel takes one number per dimension, 2 of them; got 3"),
        ("neighborhood(grid(w=8), kernel=3, causal=1)", "causal takes True or False per dimension"),
        ("tile_window(grid(w=8), tile=2, window=5)", "window must fit the grid: 5 tiles of 2 on 8 cells"),
        ("tile_window(grid(w=8), tile=2, window=1, shift=2)", "shift must be less than its tile 2, got 2"),
    ],
)
def test_errors_say_what_was_expected(text, message):
    with pytest.raises(ps.StudioError, match=message):
        ps.parse(text)
