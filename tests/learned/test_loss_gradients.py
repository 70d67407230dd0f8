"""Gradients of the loss by attention outputs: against finite differences, draws, what is left as it was, errors."""

from __future__ import annotations

import pytest
import torch
from transformers import AttentionInterface, LlamaConfig, LlamaForCausalLM

import pattern_studio as ps
from pattern_studio.capture.record import record, switched_attention
from pattern_studio.learned import LossGradients, loss_gradients
from pattern_studio.learned.attention_outputs import attention_outputs

IDS = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3]


def llama(layers: int = 2) -> LlamaForCausalLM:
    """Random weights, float64, 4 heads over 2 KV heads, large enough that attention matters."""
    torch.manual_seed(0)
    size = {"hidden_size": 16, "intermediate_size": 16, "num_attention_heads": 4, "num_key_value_heads": 2}
    config = LlamaConfig(vocab_size=11, num_hidden_layers=layers, head_dim=4, initializer_range=0.5, **size)
    return LlamaForCausalLM(config).double().eval()


def nudged(model: LlamaForCausalLM, layer: int, nudge: torch.Tensor) -> float:
    """The summed loss with `nudge` [heads, tokens, head_dim] added to one layer's attention output."""

    def attend(module, q, k, v, mask, **kwargs):
        out, weights = AttentionInterface()["sdpa"](module, q, k, v, mask, **kwargs)
        return (out + nudge.transpose(0, 1) if module.layer_idx == layer else out), weights

    AttentionInterface.register("nudged", attend)
    with switched_attention(model, "nudged"), torch.no_grad():
        logits = model(torch.tensor([IDS])).logits[0, :-1]
    return float(torch.nn.functional.cross_entropy(logits, torch.tensor(IDS[1:]), reduction="sum"))


@pytest.mark.parametrize("layer", [0, 1])
def test_the_first_draw_is_the_gradient_of_the_texts_own_loss(layer):
    model = llama()
    found = loss_gradients(model, IDS, samples=0).layers[layer]
    assert found.shape == (1, 4, len(IDS), 4)
    generator = torch.Generator().manual_seed(1)
    for _ in range(4):
        way = torch.randn(4, len(IDS), 4, generator=generator, dtype=torch.float64)
        # Not nearer: the model's norms are float32 whatever the weights are.
        slope = (nudged(model, layer, 3e-3 * way) - nudged(model, layer, -3e-3 * way)) / 6e-3
        assert float((found[0].double() * way).sum()) == pytest.approx(slope, rel=1e-3, abs=1e-3)


def test_drawn_tokens_have_a_mean_gradient_of_zero():
    """Of what the model itself predicts the loss is stationary: over many draws the mean goes, the size stays."""
    drawn = loss_gradients(llama(1), IDS, samples=400).layers[0][1:]
    assert float(drawn.mean(0).norm()) < 0.15 * float(drawn.flatten(1).norm(dim=1).mean())


def test_draws_repeat_and_the_model_is_left_as_it_was():
    model = llama()
    next(model.parameters()).requires_grad_(False)
    before, implementation = [p.requires_grad for p in model.parameters()], model.config._attn_implementation
    state = torch.random.get_rng_state()
    one, two, three = (loss_gradients(model, IDS, samples=2, seed=seed).layers[0] for seed in (5, 5, 6))
    assert torch.equal(one, two)
    assert torch.equal(one[0], three[0])
    assert not torch.equal(one[1:], three[1:])
    assert torch.equal(state, torch.random.get_rng_state())
    assert [p.requires_grad for p in model.parameters()] == before
    assert all(p.grad is None for p in model.parameters())
    assert model.config._attn_implementation == implementation
    # The last position predicts nothing that is scored.
    assert not one[:, :, -1].any()


@pytest.mark.parametrize("layers", [[2, 0], [2, 1], [2]])
def test_some_layers_and_heads_are_the_same_ones_of_all(layers):
    model = llama(3)
    everything, some = loss_gradients(model, IDS), loss_gradients(model, IDS, layers=layers, heads=[3, 1])
    assert list(some.layers) == sorted(layers)
    for number, found in some.layers.items():
        assert torch.equal(found, everything.layers[number][:, [3, 1]])


def test_what_comes_before_the_first_wanted_layer_keeps_nothing_for_a_way_back():
    model = llama(3).requires_grad_(False)
    with attention_outputs(model, [1]) as outputs:
        hidden = model.base_model(torch.tensor([IDS])).last_hidden_state
    assert hidden.requires_grad
    assert [(outputs[n].requires_grad, outputs[n].is_leaf) for n in range(3)] == [
        (False, True),
        (True, True),
        (True, False),
    ]


def test_errors():
    model = llama(1)
    with pytest.raises(ps.StudioError, match=r"expected layers among the model's \[0\], each once, got \[0, 4\]"):
        loss_gradients(model, IDS, layers=[0, 4])
    with pytest.raises(ps.StudioError, match=r"expected heads among .* \[0, 1, 2, 3\], each once, got \[1, 1\]"):
        loss_gradients(model, IDS, heads=[1, 1])
    with pytest.raises(ps.StudioError, match=r"expected layers .* got \[\]; choose of these"):
        loss_gradients(model, IDS, layers=[])
    with pytest.raises(ps.StudioError, match="expected at least 2 tokens, as the first has no loss, got 1"):
        loss_gradients(model, [1])
    with pytest.raises(ps.StudioError, match="samples"):
        loss_gradients(model, IDS, samples=-1)
    with pytest.raises(ps.StudioError, match="expected a model in eval mode"):
        loss_gradients(llama(1).train(), IDS)
    capture = record(
        model, {"input_ids": torch.tensor([IDS])}, layers=[0], model_name="toy", text="none", tokens=tuple("abcdefghij")
    )
    with pytest.raises(ps.StudioError, match=r"expected gradients of layer 0, got those of \[3\]"):
        LossGradients({3: torch.zeros(1, 4, 10, 4)}).of(capture, 0)
    with pytest.raises(
        ps.StudioError, match=r"expected gradients \[draws, 4, 10, 4\] in layer 0, .*, got \[4, 10, 4\]"
    ):
        LossGradients({0: torch.zeros(4, 10, 4)}).of(capture, 0)
