"""The copy probe on small models, against their own logits."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

import pattern_studio as ps
from pattern_studio.metrics.retrieval import copy_probe
from tests.capture.families import build

FILLER = torch.randint(3, 256, (64,), generator=torch.Generator().manual_seed(3)).tolist()


def test_equals_the_models_own_logits_on_the_planted_text():
    model = build("gpt2")
    report = copy_probe(model, FILLER, ps.causal & ps.window(7, 0), depths=(0.25,), needle=8, draws=1, seed=5)
    (row,) = report.rows
    assert (row.depth, row.distance) == (0.25, 64 - 8 - 12)  # of 48 tokens of room
    ids = np.array(FILLER)
    ids[12:20] = ids[56:] = np.random.default_rng([5, 0, 0]).integers(0, 256, 8)
    planted = torch.tensor([ids.tolist()])
    allowed = torch.from_numpy(ps.dense_mask(ps.causal & ps.window(7, 0), ps.Problem(64))[0])
    mask = torch.zeros(64, 64).masked_fill(~allowed, -torch.inf)[None, None]
    for given, loss, accuracy in (
        (None, row.dense_loss, row.dense_accuracy),
        (mask, row.sparse_loss, row.sparse_accuracy),
    ):
        with torch.no_grad():
            logits = model(planted, attention_mask=given).logits[0, 56:-1].double()
        assert loss == pytest.approx(torch.nn.functional.cross_entropy(logits, planted[0, 57:]).item(), rel=1e-5)
        assert accuracy == (logits.argmax(-1) == planted[0, 57:]).double().mean()
    json.dumps(report.as_dict(), allow_nan=False)


def test_the_same_seed_gives_the_same_needles_and_dense_loses_nothing():
    model = build("llama")
    one, two = (copy_probe(model, FILLER, ps.causal, needle=8, draws=1) for _ in range(2))
    assert one == two
    assert one != copy_probe(model, FILLER, ps.causal, needle=8, draws=1, seed=1)
    assert all(row.sparse_loss == pytest.approx(row.dense_loss, rel=1e-5) for row in one.rows)


@pytest.mark.parametrize(
    ("message", "call"),
    [
        (r"at least 80 tokens and depths from 0 to 1, got 64 and",
         lambda: copy_probe(build("gpt2"), FILLER, ps.causal, needle=40)),
        (r"got 64 and \[2\]; take a longer text", lambda: copy_probe(build("gpt2"), FILLER, ps.causal, depths=[2])),
        ("expected a causal language model", lambda: copy_probe(build("bert"), FILLER, ps.causal)),
        ("call model.eval", lambda: copy_probe(build("gpt2").train(), FILLER, ps.causal)),
    ],
)  # fmt: skip
def test_errors(message, call):
    with pytest.raises(ps.StudioError, match=message):
        call()
