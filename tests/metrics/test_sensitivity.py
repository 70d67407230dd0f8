"""How much a model minds its layers: on small random models, and what the weights are for."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

import pattern_studio as ps
from pattern_studio.capture.record import record
from pattern_studio.metrics import analyze
from pattern_studio.metrics.embedding import embed
from pattern_studio.metrics.loss import position_losses
from pattern_studio.metrics.sensitivity import layer_sensitivity, reference_pattern
from tests.capture.families import build

IDS = torch.randint(3, 256, (64,), generator=torch.Generator().manual_seed(0)).tolist()


def recorded(model, layers=(0, 1, 2)):
    return record(
        model, {"input_ids": torch.tensor([IDS])}, layers=layers, model_name="m", text="t",
        tokens=tuple(map(str, IDS)), dtype=torch.float32,
    )  # fmt: skip


def turned(capture):
    report = analyze(reference_pattern(len(IDS), capture.causal), capture, metrics=["output_error"])
    return [np.mean([(1 - head.output_error.cosine) ** 8 for head in layer.heads]) for layer in report.layers]


def test_a_decoder_is_weighed_by_its_losses():
    model = build("gpt2")
    capture = recorded(model)
    told = []
    found = layer_sensitivity(model, IDS, capture, progress=told.append)
    assert told == ["layer 0 alone", "layer 1 alone", "layer 2 alone"]
    dense, *alone = (
        position_losses(model, IDS, reference_pattern(64, True), layers=layers) for layers in ([], [0], [1], [2])
    )
    minds = [float((one - dense).square().mean()) / far for one, far in zip(alone, turned(capture), strict=True)]
    assert found == pytest.approx(np.array(minds) / sum(minds), rel=1e-3)
    assert sum(found) == pytest.approx(1, abs=1e-3)
    # Of some layers alone the ratios are the same, and a capture that knows them is measured with them.
    some = layer_sensitivity(model, IDS, recorded(model, [0, 2]))
    assert some[0] / some[1] == pytest.approx(found[0] / found[2], rel=2e-3)
    pattern = ps.causal & ps.window(3, 0)
    known = analyze(pattern, replace(capture, sensitivity=found), metrics=["damage"])
    given = analyze(pattern, capture, metrics=["damage"], sensitivity=found)
    assert known.weighted_damage == given.weighted_damage > 0


def test_an_encoder_is_weighed_by_its_embedding():
    model = build("bert")
    capture = recorded(model)
    assert not capture.causal
    found = layer_sensitivity(model, IDS, capture)
    dense, pattern = embed(model, [IDS]), reference_pattern(64, False)
    minds = []
    for layer, far in enumerate(turned(capture)):
        alone = embed(model, [IDS], ps.layers({n: pattern if n == layer else ps.dense for n in range(3)}))
        minds.append(float(1 - (dense * alone).sum()) / far)
    assert found == pytest.approx(np.array(minds) / sum(minds), rel=1e-3)


def test_what_can_not_be_measured():
    model = build("gpt2")
    capture = recorded(model)
    with pytest.raises(ps.StudioError, match="expected the text of the capture, 64 tokens, got 63; pass the ids"):
        layer_sensitivity(model, IDS[:-1], capture)
    short = record(
        model, {"input_ids": torch.tensor([IDS[:4]])}, layers=[0], model_name="m", text="t", tokens=tuple("abcd")
    )
    with pytest.raises(ps.StudioError, match="changes the output of every layer, got one of 4 tokens where it does"):
        layer_sensitivity(model, IDS[:4], short)
