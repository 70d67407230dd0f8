"""huggingface: a tiny random Llama with the pattern, against SDPA under our dense mask; and config fields."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from transformers import LlamaConfig, LlamaForCausalLM, MistralConfig, MistralForCausalLM
from transformers.masking_utils import bidirectional_mask_function, causal_mask_function, create_causal_mask

import pattern_studio as ps
from pattern_studio.exporters import export
from tests.exporters.consumers import anything, long_problems
from tests.exporters.flex import assert_formatted, run_source

SIZES = dict(
    vocab_size=64,
    hidden_size=32,
    intermediate_size=48,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    max_position_embeddings=256,
)
LENGTH = 40


def source(text: str, problem: ps.Problem):
    return run_source(export(ps.parse(text), problem, 16, to="huggingface").content, "transformers")


def model(kind=LlamaForCausalLM, config=LlamaConfig, **options):
    torch.manual_seed(0)
    return kind(config(**SIZES, **options)).eval().double()


@pytest.fixture(scope="module")
def tokens():
    return torch.randint(0, 64, (2, LENGTH), generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize(
    "text",
    [
        "causal & (window(6, 0) | sink(2))",
        "heads({0: causal, 1: window(3, 0), 2:4: causal & chunk(10)})",
        "causal & docs",
        "causal & random(4, seed=1) | window(0, 0)",
        "window(5, 5)",
    ],
)
def test_a_llama_attends_as_under_the_dense_mask(text, tokens):
    problem = ps.Problem(LENGTH, heads=4, docs=(15, 25))
    source(text, problem).register("pattern_studio_test")
    ours, plain = model(attn_implementation="pattern_studio_test"), model(attn_implementation="sdpa")
    mask = torch.from_numpy(ps.dense_mask(ps.causal & ps.parse(text), problem, block=16))[None].expand(2, -1, -1, -1)
    with torch.no_grad():
        found = ours(tokens).logits
        # A 4-D mask is taken by transformers as it is.
        torch.testing.assert_close(found, plain(tokens, attention_mask=mask).logits, rtol=0, atol=1e-12)
        assert (found - plain(tokens).logits).abs().max() > 1e-3, "the mask is not ignored"


@pytest.mark.filterwarnings("ignore:`past_key_values` is deprecated")  # its new name is unknown to transformers 5.0
def test_padding_and_a_cache_keep_the_pattern(tokens):
    problem = ps.Problem(LENGTH, heads=4)
    text = "causal & (window(6, 0) | sink(2))"
    source(text, problem).register("pattern_studio_test")
    ours, plain = model(attn_implementation="pattern_studio_test"), model(attn_implementation="sdpa")
    padding = torch.ones_like(tokens)
    padding[1, :7] = 0
    seen = ps.dense_mask(ps.parse(text), problem)[None] & padding.bool().numpy()[:, None, None, :]
    with torch.no_grad():
        padded = ours(tokens, attention_mask=padding, position_ids=torch.arange(LENGTH)[None]).logits
        wanted = plain(tokens, attention_mask=torch.from_numpy(seen), position_ids=torch.arange(LENGTH)[None]).logits
        torch.testing.assert_close(padded[0], wanted[0], rtol=0, atol=1e-12)
        torch.testing.assert_close(padded[1, 7:], wanted[1, 7:], rtol=0, atol=1e-12)
        first = ours(tokens[:, :30], use_cache=True)
        rest = ours(tokens[:, 30:], past_key_values=first.past_key_values).logits
        torch.testing.assert_close(rest, ours(tokens).logits[:, 30:], rtol=0, atol=1e-12)


def test_longer_sequences_than_the_problem(tokens):
    module = source("causal & dilated(9, 0, rate=3)", ps.Problem(8))
    mask = module.attention_mask(1, LENGTH, LENGTH, mask_function=causal_mask_function)
    np.testing.assert_array_equal(
        mask[0].numpy(), ps.dense_mask(ps.parse("causal & dilated(9, 0, rate=3)"), ps.Problem(LENGTH))
    )


@settings(max_examples=25, deadline=None)
@given(anything, long_problems(square=True, longest=80))
def test_mask_function_is_the_pattern(pattern, problem):
    module = run_source(export(pattern, problem, 16, to="huggingface").content, "transformers")
    n = problem.kv_len
    mask = module.attention_mask(2, n, n, mask_function=bidirectional_mask_function)
    wanted = ps.dense_mask(pattern, problem, block=16)
    np.testing.assert_array_equal(mask.expand(2, 3, n, n).numpy(), np.broadcast_to(wanted, (2, *wanted.shape)))


@pytest.mark.parametrize(("text", "window"), [("causal & window(6, 0)", 7), ("window(0, 3) & causal", 1)])
def test_config_fields_mean_the_same(text, window, tokens):  # A1
    module = source(text, ps.Problem(LENGTH))
    config = module.configure(MistralConfig(**SIZES))
    assert (config.sliding_window, config.layer_types) == (window, ["sliding_attention"] * 2)
    fields = model(MistralForCausalLM, MistralConfig, sliding_window=window, attn_implementation="sdpa")
    module.register("pattern_studio_test")
    ours = model(MistralForCausalLM, MistralConfig, sliding_window=None, attn_implementation="pattern_studio_test")
    with torch.no_grad():
        torch.testing.assert_close(ours(tokens).logits, fields(tokens).logits, rtol=0, atol=1e-12)


def test_chunks_have_their_own_field():
    config = source("causal & chunk(16)", ps.Problem(LENGTH)).configure(LlamaConfig(**SIZES))
    assert (config.attention_chunk_size, config.layer_types) == (16, ["chunked_attention"] * 2)
    for text in ("causal", "window(3, 3)", "causal & (window(3, 0) | sink(1))", "causal & strided(2)"):
        assert not hasattr(source(text, ps.Problem(LENGTH)), "configure")


def test_causality_is_lost_without_the_second_registration(tokens):
    """What the generated text warns of, seen in the installed transformers."""
    from transformers import AttentionInterface
    from transformers.integrations.sdpa_attention import sdpa_attention_forward

    AttentionInterface.register("pattern_studio_half", sdpa_attention_forward)
    config = LlamaConfig(**SIZES, attn_implementation="pattern_studio_half")
    assert create_causal_mask(config, torch.zeros(1, 8, 32), None, cache=None) is None


def test_pairs_after_the_query_are_noted():
    file = export(ps.window(2, 2), ps.Problem(10), 16, to="huggingface")
    assert file.notes[0].startswith("17 pairs lie after the query: a decoder's own causal mask keeps them out")
    assert export(ps.causal, ps.Problem(10), 16, to="huggingface").notes == ()


def test_generated_text_is_formatted():
    problem = ps.Problem(40, heads=2, docs=(9, 31))
    texts = ("causal & window(3, 0)", "heads({0: docs, 1: causal})", "random(3)")
    assert_formatted(*(export(ps.parse(text), problem, 16, to="huggingface").content for text in texts))
