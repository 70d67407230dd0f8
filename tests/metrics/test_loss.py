"""A pattern swapped into small models, against the same models with a mask of their own."""

from __future__ import annotations

import json
import math

import pytest
import torch

import pattern_studio as ps
from pattern_studio.metrics.loss import added_interval, next_token_loss, position_losses
from pattern_studio.metrics.swap import swapped
from tests.capture.families import FAMILIES, build

IDS = torch.randint(3, 256, (96,), generator=torch.Generator().manual_seed(2)).tolist()
WINDOW = ps.causal & (ps.window(7, 0) | ps.sink(2))


def own_loss(model, mask, first):
    """With the model's own attention under an additive mask that it is given."""
    with torch.no_grad():
        logits = model(torch.tensor([IDS]), attention_mask=mask).logits[0, first - 1 : -1].double()
    return torch.nn.functional.cross_entropy(logits, torch.tensor(IDS[first:])).item()


@pytest.mark.parametrize("family", [name for name, (_, _, causal, *_) in FAMILIES.items() if causal])
def test_equals_the_models_own_masked_attention(family):
    model = build(family)
    allowed = torch.from_numpy(ps.dense_mask(WINDOW, ps.Problem(len(IDS)))[0])
    mask = torch.zeros(allowed.shape).masked_fill(~allowed, -torch.inf)[None, None]
    report = next_token_loss(model, IDS, WINDOW)
    assert (report.tokens, report.scored) == (96, 48)
    assert report.dense == pytest.approx(own_loss(model, None, 48), rel=1e-5)
    assert report.sparse == pytest.approx(own_loss(model, mask, 48), rel=1e-5)
    assert abs(report.added) > 1e-3
    # The random model's attention implementation is what it was.
    assert model.config._attn_implementation == "sdpa"


def test_patterns_by_head_and_layer():
    model = build("llama")
    alone = next_token_loss(model, IDS, WINDOW, layers=[1])
    assigned = next_token_loss(model, IDS, ps.layers({range(0, 3, 2): ps.dense, 1: WINDOW}))
    assert assigned.sparse == pytest.approx(alone.sparse, rel=1e-6)
    headed = next_token_loss(model, IDS, ps.heads({range(0, 6): WINDOW}), layers=[1], sensitivity=True)
    assert headed.sparse == pytest.approx(alone.sparse, rel=1e-6)
    assert [one.layer for one in headed.layers] == [1]
    assert headed.layers[0].added == pytest.approx(headed.added, rel=1e-6)
    json.dumps(headed.as_dict(), allow_nan=False)
    assert f"| 1 | {headed.added:+.4f} |" in headed.to_markdown()


def test_the_interval_by_hand():
    low, high = added_interval(torch.cat([torch.full((32,), 1.0), torch.full((32,), 3.0)]).double())
    # Means 1 and 3: centre 2, standard deviation sqrt(2), of the mean 1.
    assert (low, high) == (pytest.approx(2 - 1.96), pytest.approx(2 + 1.96))
    assert added_interval(torch.ones(40).double()) == (None, None)


def test_position_losses_are_what_the_report_averages():
    model = build("gpt2")
    dense, sparse = (position_losses(model, IDS, WINDOW, layers=layers) for layers in ([], None))
    report = next_token_loss(model, IDS, WINDOW)
    assert (dense.shape, dense.dtype) == ((48,), torch.float64)
    assert (float(dense.mean()), float(sparse.mean())) == (report.dense, report.sparse)
    assert added_interval(sparse - dense) == (report.added_low, report.added_high)


def test_nothing_dropped_adds_nothing_and_an_encoder_can_be_swapped():
    report = next_token_loss(build("gpt2"), IDS, ps.causal)
    assert report.added == pytest.approx(0, abs=1e-5)
    assert report.as_dict()["perplexity_dense"] == pytest.approx(math.exp(report.dense))
    model, ids = build("bert"), torch.tensor([IDS])
    with torch.no_grad():
        whole = model(ids).last_hidden_state
        with swapped(model, ps.window(95, 95)):
            torch.testing.assert_close(model(ids).last_hidden_state, whole, rtol=1e-5, atol=1e-5)
        with swapped(model, ps.window(3, 3)):
            assert (model(ids).last_hidden_state - whole).abs().max() > 5e-3


@pytest.mark.parametrize(
    ("message", "call"),
    [
        ("expected at least 2 tokens and a score_from from 1 to 95, got 96 tokens and 0",
         lambda: next_token_loss(build("gpt2"), IDS, ps.causal, score_from=0)),
        ("expected a causal language model with a plain output layer, got BertModel",
         lambda: next_token_loss(build("bert"), IDS, ps.causal)),
        (r"expected to swap layers \[7\], got no attention from \[7\]; the model has \[0, 1, 2\]",
         lambda: next_token_loss(build("gpt2"), IDS, ps.causal, layers=[7])),
        (r"head 1 has no pattern in heads\(\)", lambda: next_token_loss(build("gpt2"), IDS, ps.heads({0: ps.causal}))),
        ("in training mode; call model.eval", lambda: next_token_loss(build("gpt2").train(), IDS, ps.causal)),
    ],
)  # fmt: skip
def test_errors(message, call):
    with pytest.raises(ps.StudioError, match=message):
        call()
