"""What a model minds: rows against their definition, projection and stream against the model's own parts, errors."""

from __future__ import annotations

import pytest
import torch

import pattern_studio as ps
from pattern_studio.capture.record import record
from pattern_studio.learned import loss_gradients, measured_minds
from pattern_studio.learned.attention_outputs import attention_outputs
from tests.capture.families import build

IDS = torch.randint(3, 256, (40,), generator=torch.Generator().manual_seed(0)).tolist()


def recorded(model, layers=(0, 2), dtype=torch.float32):
    return record(
        model, {"input_ids": torch.tensor([IDS])}, layers=layers, model_name="m", text="t",
        tokens=tuple(map(str, IDS)), dtype=dtype,
    )  # fmt: skip


@pytest.mark.parametrize("family", ["llama", "mistral", "qwen2", "qwen3", "gpt2"])
def test_every_familys_rows_projection_and_stream(family):
    model = build(family)
    found = measured_minds(model, IDS, recorded(model), samples=3, seed=1)
    with attention_outputs(model) as outputs, torch.no_grad():
        hidden = model(torch.tensor([IDS]), output_hidden_states=True, use_cache=False).hidden_states
    drawn = loss_gradients(model, IDS, samples=3, seed=1, layers=[0, 2])
    blocks = model.base_model.h if family == "gpt2" else model.base_model.layers
    assert list(found.layers) == [0, 2]
    for number, minds in found.layers.items():
        worth = (drawn.layers[number][1:] * outputs[number][0]).sum(-1).square().mean(0)
        # The same passes, summed in another order: float32's rounding, of values around .01.
        torch.testing.assert_close(minds.rows, worth.detach(), rtol=1e-5, atol=1e-7)
        assert minds.rows.any()
        assert not minds.rows[:, -1].any()  # the last position predicts nothing
        own = blocks[number].attn.c_proj.weight.T if family == "gpt2" else blocks[number].self_attn.o_proj.weight
        # A bias that is added and taken away again leaves its rounding.
        torch.testing.assert_close(minds.projection, own.detach(), rtol=0, atol=1e-6)
        torch.testing.assert_close(minds.stream, hidden[number][0].square().sum(-1).detach(), rtol=1e-6, atol=0)


def test_it_repeats_and_leaves_the_model_as_it_was():
    model = build("llama")
    before, state = [p.requires_grad for p in model.parameters()], torch.random.get_rng_state()
    capture = recorded(model, dtype=torch.float16)
    one, two = (measured_minds(model, IDS, capture).layers[2] for _ in range(2))
    assert torch.equal(one.rows, two.rows)
    assert (one.rows.dtype, one.projection.dtype, one.stream.dtype) == (torch.float32, torch.float16, torch.float32)
    assert torch.equal(state, torch.random.get_rng_state())
    assert [p.requires_grad for p in model.parameters()] == before
    assert not any(part._forward_pre_hooks for part in model.modules())


def test_another_text_or_a_model_without_a_projection_of_its_own():
    model = build("llama")
    capture = recorded(model)
    with pytest.raises(ps.StudioError, match="expected the text of the capture, 40 tokens, got 39; pass the ids"):
        measured_minds(model, IDS[:-1], capture)

    for layer in model.base_model.layers:
        own = layer.self_attn.o_proj
        layer.self_attn.o_proj = torch.nn.Sequential(torch.nn.Dropout(0.0), own)
    with pytest.raises(ps.StudioError, match="expected the heads' outputs of layer 0 to go through one linear proj"):
        measured_minds(model, IDS, capture)
    assert not any(part._forward_pre_hooks for part in model.modules())
