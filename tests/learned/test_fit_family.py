"""Families: the budget kept, each head its own member, and measured on rows that the fit did not see."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

import pattern_studio as ps
from pattern_studio.learned import fit_family, predicted_loss
from pattern_studio.learned.families import family_members
from pattern_studio.metrics import row_recall
from tests.learned.test_fit_blocks import kinds, part
from tests.learned.test_tile_importance import drawn
from tests.metrics.captures import capture_of, weighted

TEXT = part(range(0, 192))


@pytest.mark.parametrize("families", ["local_window", "global_local", "columns", ("hierarchical",)])
def test_a_family_fitted_to_the_first_rows(families):
    found = fit_family(families, TEXT, 0.5, (16, 8), fit_rows=96)
    assert ps.parse(str(found.pattern)) == found.pattern
    total = sum(int(kinds(found, TEXT, layer).sum()) for layer in TEXT.layers)
    assert found.tiles == total <= found.tiles_allowed
    assert found.tiles > 0.9 * found.tiles_allowed
    assert found.held_out is not None
    assert found.fit.on.startswith("rows 0 to 95 of")
    assert found.fit.on.endswith("(fitted to these rows)")
    assert found.held_out.on.startswith("rows 96 to 191 of")
    recall = np.stack([row_recall(found.pattern, TEXT, layer, (16, 8)) for layer in TEXT.layers])
    assert found.fit.mean == pytest.approx(recall[..., :96].mean())
    assert found.held_out.mean == pytest.approx(recall[..., 96:].mean())
    assert (recall > 0).all()  # no row is empty


def test_more_families_and_per_head_choices_keep_more():
    """On the rows they are fitted to: one window for all heads, then one for each, then columns as well."""
    shape = (16, 8)
    each = fit_family("local_window", TEXT, 0.5, shape, layers=[20])
    more = fit_family(("local_window", "columns"), TEXT, 0.5, shape, layers=[20])
    one = ps.generators.local_window(0.5, ps.Problem(192), shape, sinks=4)
    alike = row_recall(one.pattern, TEXT, 20, shape).mean()
    assert alike < each.fit.mean < more.fit.mean


def test_columns_are_those_of_most_mass():
    """Made by hand: nearly all mass on keys 4 and 5, so the first column is their block."""
    weights = np.ones(16)
    weights[4:6] = 100
    capture = capture_of(weighted(weights), causal=True)
    members = family_members(["columns"], capture, 0, (2, 2), ps.Problem(16))
    assert str(members[0][0]) == "causal & (vertical((range(4, 6),)) | window(1, 0))"


def test_a_full_capture_has_windows_on_both_sides():
    capture = capture_of(weighted(np.arange(1.0, 17.0)), causal=False)
    found = fit_family(("local_window", "columns"), capture, 0.5, (4, 2))
    assert "causal" not in str(found.pattern)
    assert found.tiles <= found.tiles_allowed == 16


def test_by_loss_the_heads_that_it_minds_have_wide_windows():
    gradients = drawn(TEXT, 2)
    gradients.layers[20][:, :5] = 0
    found = fit_family("local_window", TEXT, 0.31, (16, 8), head_floor=0, gradients=gradients)
    assert 0.9 * found.tiles_allowed < found.tiles <= found.tiles_allowed
    assert max(found.density[20][:5]) < min(found.density[20][5:] + found.density[7])
    alike = ps.generators.local_window(0.31, ps.Problem(192), (16, 8), sinks=4).pattern
    lost = [sum(predicted_loss(p, TEXT, gradients, n, (16, 8)).sum() for n in (7, 20)) for p in (found.pattern, alike)]
    assert lost[0] < lost[1]
    assert fit_family("local_window", TEXT, 0.31, (16, 8), head_floor=0).pattern != found.pattern


def test_the_first_rows_of_a_capture_with_gradients_are_those_of_one_without():
    found = fit_family("columns", replace(TEXT, gradients=drawn(TEXT, 2).to(torch.float32)), 0.5, (16, 8), fit_rows=96)
    assert found == fit_family("columns", TEXT, 0.5, (16, 8), fit_rows=96)


def test_errors():
    with pytest.raises(ps.StudioError, match="gradients are of the loss on the whole text; leave fit_rows out"):
        fit_family("local_window", TEXT, 0.5, 32, fit_rows=96, gradients=drawn(TEXT, 1))
    with pytest.raises(
        ps.StudioError, match=r"expected a family among local_window, .*, got 'column'; did you mean 'columns'"
    ):
        fit_family("column", TEXT, 0.5, 32)
    with pytest.raises(ps.StudioError, match="does not pay for the least of each of the 18 parts"):
        fit_family("local_window", TEXT, 0.02, (16, 8))
    with pytest.raises(ps.StudioError, match=r"fit_rows cuts a causal capture; .* pass held_out instead"):
        fit_family("local_window", capture_of(weighted([1.0, 2.0])), 0.5, 1, fit_rows=1)
