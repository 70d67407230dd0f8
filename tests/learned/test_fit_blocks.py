"""Free layouts: the budget to the tile, floors held, the best possible without floors, and what was measured where."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import pattern_studio as ps
from pattern_studio.capture import LayerCapture, bundled
from pattern_studio.learned import Tiling, fit_blocks
from pattern_studio.metrics import analyze, block_mass
from tests.metrics.captures import random_captures


def part(rows: range):
    """Some tokens of the bundled capture, as a text of their own."""
    whole = bundled()
    layers = {
        n: LayerCapture(*(x[:, rows.start : rows.stop] for x in (y.q, y.k, y.v))) for n, y in whole.layers.items()
    }
    return replace(whole, layers=layers, tokens=whole.tokens[rows.start : rows.stop])


def kinds(found, capture, layer) -> np.ndarray:
    heads = capture.layers[layer].heads
    layout = ps.lower(found.pattern, q_len=len(capture.tokens), heads=heads, block=found.block, layer=layer)
    return np.stack([layout.tile_kinds(head) > 0 for head in range(heads)])


@settings(max_examples=40)
@given(
    random_captures(),
    st.tuples(st.integers(1, 7), st.integers(1, 7)),
    st.floats(0.1, 1),
    st.floats(0, 1),
    st.floats(0, 1),
)
def test_budget_floors_and_recall(capture, block, density, row_floor, head_floor):
    tiling = Tiling(len(capture.tokens), len(capture.tokens), block, None, capture.causal)
    visible = tiling.visible(torch.device("cpu"))[0].numpy()
    heads, per_head = sum(layer.heads for layer in capture.layers.values()), int(visible.sum())
    allowed = math.floor(heads * per_head * (density + 1e-9))
    by_row = np.maximum(np.floor(visible.sum(1) * row_floor * density + 1e-9), 1)  # 1: the sink
    by_head = int(head_floor * allowed / heads)
    if max(by_row.sum(), by_head) * heads > allowed:
        with pytest.raises(ps.StudioError, match="but the floors and the protected tiles take"):
            fit_blocks(capture, density, block, row_floor=row_floor, head_floor=head_floor)
        return
    found = fit_blocks(capture, density, block, row_floor=row_floor, head_floor=head_floor)
    masks = [kinds(found, capture, layer) for layer in capture.layers]
    assert found.tiles == found.tiles_allowed == allowed
    assert found.tiles == sum(int(mask.sum()) for mask in masks)
    assert found.achieved <= density + 1e-9
    assert ps.parse(str(found.pattern)) == found.pattern
    for layer, mask in zip(capture.layers, masks, strict=True):
        assert not (mask & ~visible).any()
        assert (mask.sum(2) >= by_row).all()
        assert (mask.sum((1, 2)) >= by_head).all()
        assert mask[:, :, 0].all()  # the sink: no row is empty
        assert found.density[layer] == pytest.approx((mask.sum((1, 2)) / per_head).tolist())
    report = analyze(found.pattern, capture, block=block, metrics=["recall"])
    assert report.recall is not None
    # Over heads, as every row of every head counts once.
    mean = np.average([one.recall.mean for one in report.layers], weights=[len(mask) for mask in masks])
    assert found.fit.mean == pytest.approx(mean, abs=1e-6)


@settings(max_examples=25)
@given(random_captures(), st.tuples(st.integers(1, 7), st.integers(1, 7)), st.floats(0.1, 1))
def test_without_floors_no_choice_keeps_more(capture, block, density):
    found = fit_blocks(capture, density, block, row_floor=0, head_floor=0, sinks=0)
    mass = np.concatenate([block_mass(capture, layer, block).astype(float) for layer in capture.layers])
    tokens = len(capture.tokens)
    rows = np.minimum(block[0], tokens - np.arange(0, tokens, block[0]))[:, None]
    best = np.sort((mass * rows).ravel())[::-1][: found.tiles].sum() / (tokens * len(mass))
    assert found.fit.mean == pytest.approx(best, abs=1e-5)


def test_another_text_is_measured_as_such():
    """Fitted to one stretch of real text, measured on another: lower, and said so."""
    one, other = part(range(0, 256)), part(range(512, 768))
    found = fit_blocks(one, 0.25, (32, 8), held_out=other)
    assert found.fit.on.endswith("(fitted to these rows)")
    assert found.fit.on.startswith("rows 0 to 255 of Jargon File")
    assert found.held_out is not None
    assert found.held_out.on.endswith("(another text than the fit's)")
    assert found.held_out.mean < found.fit.mean
    assert found.as_dict()["held_out"]["mean"] == found.held_out.mean
    assert fit_blocks(one, 0.25, (32, 8)).held_out is None


def test_a_shared_budget_keeps_more_than_an_equal_one():
    capture = part(range(0, 256))
    shared = fit_blocks(capture, 0.25, (32, 8), head_floor=0.25)
    equal = fit_blocks(capture, 0.25, (32, 8), head_floor=1)
    assert shared.fit.mean > equal.fit.mean
    assert len({round(d, 2) for d in equal.density[7] + equal.density[20]}) == 1


def test_errors():
    capture = part(range(0, 64))
    with pytest.raises(ps.StudioError) as caught:
        fit_blocks(capture, 0.1, 16)
    assert str(caught.value) == (
        "a block density of 0.1 pays for 18 of the 180 tiles, but the floors and the protected tiles take 72: ask for "
        "more, lower row_floor and head_floor, or protect fewer"
    )
    with pytest.raises(ps.StudioError, match="row_floor is a share of the mean budget from 0 to 1, got 2"):
        fit_blocks(capture, 0.5, 16, row_floor=2)
    with pytest.raises(ps.StudioError, match="a block density lies above 0 and up to 1, got 0;"):
        fit_blocks(capture, 0, 16)
    with pytest.raises(ps.StudioError, match=r"expected a held-out capture of 64 tokens, .* got 32, True and \[9, 9\]"):
        fit_blocks(capture, 0.5, 16, held_out=part(range(0, 32)))
