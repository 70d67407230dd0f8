"""settling against sums over full float64 matrices."""

from __future__ import annotations

import json
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pattern_studio as ps
from pattern_studio.metrics.settling import settling

from .captures import Brute, capture_of, studies, weighted

SETTLE = [ps.cover, ps.strict, partial(ps.threshold, share=0.4)]


@settings(max_examples=25, deadline=None)
@given(studies(), st.sampled_from(SETTLE))
def test_mass_lost_and_added(study, settle):
    capture, pattern, block = study
    found = settling(pattern, capture, settle, block=block)
    lost, added = [], []
    for told, (number, layer) in zip(found.layers, capture.layers.items(), strict=True):
        brute = Brute(capture, number, pattern, block)
        size = brute.tiles(np.ones_like(brute.dense))
        whole = brute.tiles(brute.allowed.astype(float))
        stay = {"cover": whole > 0, "strict": whole == size}.get(found.name, (whole > 0) & (whole >= 0.4 * size))
        stays = np.kron(stay, np.ones(block, bool))[:, : layer.tokens, : layer.tokens]
        lost.append((brute.kept * ~stays).sum(-1).mean())
        added.append((brute.dense * (stays & ~brute.mask)).sum(-1).mean())
        assert (told.mass_lost, told.mass_added) == pytest.approx((lost[-1], added[-1]), abs=2e-6)
        assert told.pairs_dropped == (brute.allowed & ~stays).sum()
        assert told.pairs_added == (stays & ~brute.allowed).sum()
    assert (found.mass_lost, found.mass_added) == pytest.approx((np.mean(lost), np.mean(added)), abs=2e-6)
    json.dumps(found.as_dict(), allow_nan=False)


def test_by_hand():
    capture = capture_of(weighted([1, 2, 3, 4]))
    found = settling(ps.parse("vertical((0, 1, 2))"), capture, ps.strict, block=2)
    assert (found.mass_lost, found.mass_added) == pytest.approx((0.3, 0))
    found = settling(ps.parse("vertical((0, 1, 2))"), capture, ps.cover, block=2)
    assert (found.mass_lost, found.mass_added) == pytest.approx((0, 0.4))
    assert str(found) == "cover: 0 of the attention mass lost, 0.4 added"
