"""The installed transformers, tiny random models on the CPU: equal to its eager attention under the same mask."""

from __future__ import annotations

import pytest
import torch
import transformers

import pattern_studio as ps
from attention_core.modules.huggingface import use_pattern
from pattern_studio.errors import StudioError

from . import oracle

EXACT = {"rtol": 0, "atol": 1e-9}  # models are float64
# These families' eager attention takes its softmax in float32 whatever the model is: up to 3.1e-7 was seen.
FLOAT32_SOFTMAX = {"rtol": 0, "atol": 2e-6}
SIZES = {"vocab_size": 50, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
MODELS = {
    "llama": lambda: transformers.LlamaConfig(**SIZES, num_key_value_heads=2, max_position_embeddings=128),
    "qwen2": lambda: transformers.Qwen2Config(**SIZES, num_key_value_heads=2, max_position_embeddings=128),
    "mistral": lambda: transformers.MistralConfig(**SIZES, num_key_value_heads=2, sliding_window=6),
    "gpt2": lambda: transformers.GPT2Config(vocab_size=50, n_embd=32, n_layer=2, n_head=4, n_positions=128),
    "bert": lambda: transformers.BertConfig(**SIZES, max_position_embeddings=128),
}


def model(name: str, attention: str = "eager"):
    torch.manual_seed(0)
    config = MODELS[name]()
    config.pad_token_id, config.bos_token_id, config.eos_token_id = 0, None, None
    kind = transformers.AutoModelForMaskedLM if name == "bert" else transformers.AutoModelForCausalLM
    made = kind.from_config(config, attn_implementation=attention).eval().double()
    with torch.no_grad():  # attention that is not nearly uniform
        for weight in made.parameters():
            weight.mul_(4 if weight.ndim == 2 else 1)
    return made


def of_eager(name: str) -> dict[str, float]:
    return FLOAT32_SOFTMAX if name in ("llama", "qwen2", "mistral") else EXACT


def tokens(batch: int = 2, length: int = 21) -> torch.Tensor:
    return torch.randint(1, 50, (batch, length), generator=torch.Generator().manual_seed(0))


def own(name: str, length: int) -> torch.Tensor:
    text = {"bert": "dense", "mistral": "causal & window(5, 0)"}.get(name, "causal")
    return oracle.allowed(text, length)


def additive(mask: torch.Tensor) -> torch.Tensor:
    return torch.zeros(mask.shape, dtype=torch.float64).masked_fill(~mask, torch.finfo(torch.float32).min)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize(
    "text", ["dense", "window(3, 2) | sink(2)", "heads({0: dense, 1:3: window(4, 0), 3: strided(3) | window(0, 0)})"]
)
def test_equals_eager_under_the_same_mask(name, text):
    ids = tokens()
    mask = own(name, 21) & oracle.allowed(text, 21, heads=4)
    assert mask.any(-1).all()
    theirs = model(name)
    wanted = theirs(ids, attention_mask=additive(mask)[None]).logits
    ours = use_pattern(model(name), text, block=8)
    got = ours(ids).logits
    torch.testing.assert_close(got, wanted, **of_eager(name))
    if text == "dense":
        torch.testing.assert_close(got, theirs(ids).logits, **of_eager(name))
    else:
        assert (got - theirs(ids).logits).abs().max() > 0.01
    grads = [
        torch.autograd.grad(m(ids, **o).logits.square().mean(), next(m.parameters()))[0]
        for m, o in ((ours, {}), (theirs, {"attention_mask": additive(mask)[None]}))
    ]
    torch.testing.assert_close(*grads, **of_eager(name))


@pytest.mark.parametrize("name", ["llama", "bert"])
def test_pattern_by_layer(name):
    text = "layers({0: window(2, 2), 1: dense})"
    ours, theirs = use_pattern(model(name), text, block=8), model(name)
    narrow = use_pattern(model(name), "window(2, 2)", block=8)
    ids = tokens()
    states = [m(ids, output_hidden_states=True).hidden_states for m in (ours, narrow, theirs)]
    torch.testing.assert_close(states[0][1], states[1][1])  # layer 0 has the window
    assert not torch.allclose(states[0][2], states[1][2])  # layer 1 does not
    assert not torch.allclose(states[0][1], states[2][1])


@pytest.mark.parametrize("side", ["left", "right", "holes"])
@pytest.mark.parametrize("name", ["llama", "gpt2", "bert"])
def test_padding_and_no_neighbour_has_a_say(name, side):
    ours = use_pattern(model(name), "window(3, 3) | sink(2)", block=8)
    ids, keep = tokens(3), torch.ones(3, 21, dtype=torch.long)
    if side == "left":
        keep[1, :5], keep[2, :12] = 0, 0
    elif side == "right":
        keep[1, 16:], keep[2, 9:] = 0, 0
    else:
        keep[1, 4], keep[2, 7:9] = 0, 0
    places = (keep.cumsum(-1) - 1).clamp(min=0)
    got = ours(ids, attention_mask=keep, position_ids=places).logits
    if side == "holes":
        mask = own(name, 21) & oracle.allowed("window(3, 3) | sink(2)", 21) & keep.bool()[:, None, None]
        wanted = model(name)(ids, attention_mask=additive(mask), position_ids=places).logits
        torch.testing.assert_close(got[keep.bool()], wanted[keep.bool()], **of_eager(name))
        return
    for n in range(3):
        alone = ours(ids[n : n + 1, keep[n].bool()]).logits
        torch.testing.assert_close(got[n, keep[n].bool()], alone[0], **EXACT)


@pytest.mark.parametrize("name", ["llama", "mistral", "gpt2"])
def test_generate_with_and_without_a_cache(name):
    ours = use_pattern(model(name), "window(4, 0) | sink(1)", block=8)
    ids, keep = tokens(2, 11), torch.ones(2, 11, dtype=torch.long)
    keep[1, :4] = 0
    options = {"attention_mask": keep, "max_new_tokens": 8, "do_sample": False}
    cached, whole = (ours.generate(ids, use_cache=use, **options) for use in (True, False))
    assert torch.equal(cached, whole)
    for step in range(11, 19):  # each token is the best one under the eager mask of all before it
        mask = own(name, step) & oracle.allowed("window(4, 0) | sink(1)", step)
        logits = model(name)(cached[:1, :step], attention_mask=additive(mask)[None]).logits
        assert logits[0, -1].argmax() == cached[0, step]
    if name == "llama":
        static = ours.generate(ids, cache_implementation="static", disable_compile=True, **options)
        assert torch.equal(static, cached)
        alone = ours.generate(ids[1:, 4:], max_new_tokens=8, do_sample=False)
        assert torch.equal(alone[0], cached[1, 4:])


def test_packed_sequences_stay_apart():
    ours = use_pattern(model("llama"), "causal & window(6, 0)", block=8)
    ids = tokens(1, 16)
    places = torch.cat([torch.arange(7), torch.arange(9)])[None]
    got = ours(ids, position_ids=places, use_cache=False).logits
    for part in (slice(0, 7), slice(7, 16)):
        torch.testing.assert_close(got[:, part], ours(ids[:, part]).logits, **EXACT)


def test_pattern_is_saved_with_the_model(tmp_path):
    ours = use_pattern(model("llama"), "causal & window(3, 0)", block=(8, 4))
    ours.save_pretrained(tmp_path)
    again = transformers.AutoModelForCausalLM.from_pretrained(tmp_path, attn_implementation="pattern_studio").eval()
    assert again.config.pattern_studio == {"pattern": "causal & window(3, 0)", "block": [8, 4]}
    torch.testing.assert_close(again(tokens()).logits, ours(tokens()).logits)


def test_training_drops_and_learns():
    config = MODELS["llama"]()
    config.attention_dropout = 0.3
    torch.manual_seed(0)
    ours = use_pattern(transformers.LlamaForCausalLM(config), "causal & window(7, 0)", block=8).train()
    optimizer = torch.optim.AdamW(ours.parameters(), lr=1e-2)
    ids, losses = tokens(), []
    assert not torch.equal(ours(ids).logits, ours(ids).logits)
    for _ in range(8):
        loss = ours(ids, labels=ids).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < losses[0] - 0.5


def test_activation_checkpointing_changes_no_gradient():
    ours, ids = use_pattern(model("llama"), "window(4, 0)", block=8).train(), tokens()
    grads = []
    for _ in range(2):
        grads.append(torch.autograd.grad(ours(ids, labels=ids, use_cache=False).loss, [*ours.parameters()]))
        enable = getattr(ours, "activation_checkpointing_enable", ours.gradient_checkpointing_enable)
        enable()
    for one, two in zip(*grads, strict=True):
        assert torch.equal(one, two)


def test_errors():
    with pytest.raises(StudioError, match="head 3 has no pattern in heads"):
        use_pattern(model("llama"), "heads({0:3: causal})")
    with pytest.raises(StudioError, match="layer 1 has no pattern in layers"):
        use_pattern(model("llama"), ps.layers({0: ps.causal}))
    plain = use_pattern(model("llama"), "causal")
    del plain.config.pattern_studio
    with pytest.raises(StudioError, match=r"the model's config has no pattern; give it one with use_pattern\(model"):
        plain(tokens())
    ours = use_pattern(model("llama"), "causal")
    with pytest.raises(StudioError, match="a prepared float mask may hold 0"):
        ours(tokens(), attention_mask=torch.randn(1, 1, 21, 21))
    with pytest.raises(StudioError, match=r"q_len 21 and kv_len 21, got \[1, 3, 21, 21\]"):
        ours(tokens(), attention_mask=torch.ones(1, 3, 21, 21, dtype=torch.bool))
    with pytest.raises(StudioError, match="'pattern_studio' has no output_attentions; leave it out, or use 'eager'"):
        ours(tokens(), output_attentions=True)
    with pytest.raises(StudioError, match="encoder-decoder models are not served"):
        use_pattern(
            transformers.BartModel(
                transformers.BartConfig(
                    vocab_size=9,
                    d_model=8,
                    encoder_layers=1,
                    decoder_layers=1,
                    encoder_attention_heads=2,
                    decoder_attention_heads=2,
                    encoder_ffn_dim=8,
                    decoder_ffn_dim=8,
                )
            ),
            "dense",
        )
