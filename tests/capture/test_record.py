"""The recorder, on small models of random weights: what it keeps gives the layer's attention again."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers import (
    BertConfig,
    BertModel,
    Gemma2Config,
    Gemma2Model,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralModel,
    PreTrainedModel,
)

from pattern_studio.capture import Capture
from pattern_studio.capture.record import record
from pattern_studio.errors import StudioError

SIZES: dict[str, Any] = {
    "vocab_size": 50,
    "hidden_size": 48,
    "intermediate_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
}
TOKENS = 37


def build(kind: type[PreTrainedModel], config: Any) -> PreTrainedModel:
    torch.manual_seed(0)
    model = kind(config)
    for parameter in model.parameters():  # the usual small weights give nearly uniform attention, which hides mistakes
        torch.nn.init.normal_(parameter, std=0.4)
    return model.eval()


@pytest.fixture
def llama() -> PreTrainedModel:
    return build(LlamaForCausalLM, LlamaConfig(**SIZES, num_key_value_heads=2))


def inputs(batch: int = 1) -> dict[str, torch.Tensor]:
    return {"input_ids": torch.randint(50, (batch, TOKENS), generator=torch.Generator().manual_seed(1))}


def run(model: PreTrainedModel, layers: tuple[int, ...] = (0, 2), given: Any = None, **options: Any) -> Capture:
    tokens = tuple(str(position) for position in range(TOKENS))
    fixed = {"layers": layers, "model_name": "toy", "text": "random", "tokens": tokens, "dtype": torch.float32}
    return record(model, inputs() if given is None else given, **(fixed | options))


def attention(capture: Capture, number: int) -> torch.Tensor:
    """[tokens, heads * head_dim]: plain softmax of scale * q.k under the capture's own dense mask, times v."""
    layer = capture.layers[number]
    k, v = (x.double().repeat_interleave(layer.heads // layer.kv_heads, dim=0) for x in (layer.k, layer.v))
    scores = layer.q.double() @ k.transpose(1, 2) * capture.scale
    if capture.causal:
        scores = scores.masked_fill(torch.ones(TOKENS, TOKENS, dtype=torch.bool).triu(1), float("-inf"))
    return (scores.softmax(-1) @ v).transpose(0, 1).flatten(1)


def seen_by(module: torch.nn.Module, model: PreTrainedModel) -> torch.Tensor:
    """What the module is given when the model runs with its own attention."""
    found = []
    with module.register_forward_pre_hook(lambda _, given: found.append(given[0])), torch.no_grad():
        model(**inputs())
    return found[0][0].double()


@pytest.mark.parametrize("kv_heads", [1, 2, 6])
def test_recorded_q_k_v_give_the_attention_again(kv_heads: int) -> None:
    model = build(LlamaForCausalLM, LlamaConfig(**SIZES, num_key_value_heads=kv_heads))
    capture = run(model)
    assert (list(capture.layers), capture.causal, capture.scale) == ([0, 2], True, 8**-0.5)
    for number, layer in capture.layers.items():
        assert (layer.heads, layer.kv_heads, layer.head_dim) == (6, kv_heads, 8)
        expected = seen_by(model.base_model.layers[number].self_attn.o_proj, model)
        torch.testing.assert_close(attention(capture, number), expected, rtol=1e-4, atol=1e-5)


def test_encoder_is_recorded_as_not_causal() -> None:
    model = build(BertModel, BertConfig(**SIZES))
    capture = run(model)
    assert not capture.causal
    expected = seen_by(model.encoder.layer[2].attention.output.dense, model)
    torch.testing.assert_close(attention(capture, 2), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("before", ["eager", "sdpa"])
def test_model_is_left_as_it_was(llama: PreTrainedModel, before: str) -> None:
    llama.set_attn_implementation(before)
    with torch.no_grad():
        logits = llama(**inputs()).logits
    run(llama)
    with pytest.raises(IndexError):
        run(llama, given={"input_ids": torch.tensor([[999]])})
    assert (llama.config._attn_implementation, llama.config.use_cache) == (before, True)
    with torch.no_grad():
        assert torch.equal(llama(**inputs()).logits, logits)


def test_only_what_was_asked_is_kept(llama: PreTrainedModel) -> None:
    layer = run(llama, layers=(1,), dtype=torch.float16).layers[1]
    for tensor in layer.named().values():
        assert (tensor.dtype, tensor.is_contiguous(), tensor.is_inference()) == (torch.float16, True, False)
        assert tensor.untyped_storage().nbytes() == tensor.numel() * 2


def test_misuse_is_refused(llama: PreTrainedModel) -> None:
    with pytest.raises(StudioError, match=r"expected at least one layer to record, got none; choose some"):
        run(llama, layers=())
    with pytest.raises(
        StudioError, match=r"expected to meet layers \[1, 3\], got no attention from \[3\]; .* met: \[0, 1, 2\]"
    ):
        run(llama, layers=(1, 3))
    with pytest.raises(
        StudioError, match=r"one self-attention over one sequence in layer 0, got q \[2, 6, 37, 8\] and k"
    ):
        run(llama, given=inputs(batch=2))
    with pytest.raises(StudioError, match="got 2 strings for the 37 positions"):
        run(llama, tokens=("a", "b"))
    with pytest.raises(StudioError, match=r"expected tokens as strings, one per position, got 'aaa"):
        run(llama, tokens="a" * TOKENS)
    with pytest.raises(
        StudioError, match=r"expected a causal or a full dense mask, got another one in layer 0 \(a sliding"
    ):
        run(llama, given=inputs() | {"attention_mask": torch.tensor([[0, 0] + [1] * (TOKENS - 2)])})
    with torch.no_grad():
        llama.base_model.layers[2].self_attn.v_proj.weight.mul_(1e6)
    with pytest.raises(
        StudioError, match=r"layer 2: expected v to be finite, got .* float16 ends at 65504, so record in"
    ):
        run(llama, dtype=torch.float16)
    with pytest.raises(
        StudioError, match=r"expected a model in eval mode, got one in training mode; call model.eval\(\)"
    ):
        run(llama.train())


def test_attention_that_a_capture_cannot_hold_is_refused() -> None:
    windowed = build(MistralModel, MistralConfig(**SIZES, num_key_value_heads=2, sliding_window=8))
    with pytest.raises(StudioError, match="got another one in layer 0 "):
        run(windowed)
    capped = build(Gemma2Model, Gemma2Config(**SIZES, num_key_value_heads=2, head_dim=8, attn_logit_softcapping=50.0))
    with pytest.raises(StudioError, match="got attention with softcap in layer 0; a capture can't hold it"):
        run(capped)
