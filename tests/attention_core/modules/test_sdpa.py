"""The plain functions, against torch's scaled_dot_product_attention and xformers' layout."""

from __future__ import annotations

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

from attention_core.modules.sdpa import memory_efficient_pattern_attention, pattern_attention
from pattern_studio.errors import StudioError

from ..inputs import normal
from . import oracle


@pytest.mark.parametrize("lead", [(2, 4), (3,), ()])
@pytest.mark.parametrize("masked", [None, "bool", "float", "causal"])
def test_equals_torch_with_the_pattern_as_mask(lead, masked):
    q, k, v = (normal(*lead, n, 8, seed=n) for n in (13, 17, 18))
    v = v[..., :17, :]
    pattern = oracle.allowed("window(9, 9) | sink(2)", 13, 17)[0]
    mine = torch.rand(13, 17, generator=torch.Generator().manual_seed(0)) < 0.6
    mine[:, 0] = True
    given = {
        None: {},
        "bool": {"attn_mask": mine},
        "float": {"attn_mask": torch.zeros(13, 17).double().masked_fill(~mine, -torch.inf)},
        "causal": {"is_causal": True},
    }[masked]
    allowed = {None: pattern, "causal": pattern & torch.ones(13, 17).tril().bool()}.get(masked, pattern & mine)
    got = pattern_attention(q, k, v, **given, scale=0.3, pattern="window(9, 9) | sink(2)", block=8)
    torch.testing.assert_close(got, scaled_dot_product_attention(q, k, v, attn_mask=allowed, scale=0.3))


def test_grouped_keys_and_xformers_layout():
    q, k, v = normal(2, 6, 20, 8, seed=0), normal(2, 2, 20, 8, seed=1), normal(2, 2, 20, 4, seed=2)
    mask = oracle.allowed("causal & window(4, 0)", 20)
    wanted = scaled_dot_product_attention(q, k, v, attn_mask=mask[0], enable_gqa=True)
    got = pattern_attention(q, k, v, enable_gqa=True, is_causal=True, pattern="window(4, 4)", block=8)
    torch.testing.assert_close(got, wanted)
    turned = (x.transpose(1, 2) for x in (q, k, v))
    got = memory_efficient_pattern_attention(*turned, pattern="causal & window(4, 0)", block=8)
    torch.testing.assert_close(got, wanted.transpose(1, 2))


def test_dropout_applies_when_given():
    x = normal(1, 2, 30, 8, seed=0)
    torch.manual_seed(0)
    one = pattern_attention(x, x, x, dropout_p=0.5, pattern="dense", block=8)
    torch.manual_seed(0)
    assert torch.equal(
        memory_efficient_pattern_attention(*[x.transpose(1, 2)] * 3, p=0.5, pattern="dense", block=8),
        one.transpose(1, 2),
    )
    assert not torch.allclose(one, scaled_dot_product_attention(x, x, x))


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"attn_mask": torch.randn(8, 8)}, "attn_mask must be bool"),
        ({"attn_mask": torch.ones(8, 7, dtype=torch.bool)}, r"must broadcast to .*\[2, 4, 8, 8\], got \[8, 7\]"),
        (
            {"attn_mask": torch.ones(8, 8, dtype=torch.bool), "is_causal": True},
            "is_causal=True or an attn_mask, not both",
        ),
        ({"dropout_p": 1.0}, r"dropout must be a probability from 0 to below 1, got 1\.0"),
    ],
)
def test_errors(options, text):
    x = torch.zeros(2, 4, 8, 4)
    with pytest.raises(StudioError, match=text):
        pattern_attention(x, x, x, pattern="dense", block=4, **options)


def test_errors_of_shapes():
    x = torch.zeros(2, 4, 8, 4)
    with pytest.raises(StudioError, match="query has 4 heads and key 2; give enable_gqa=True"):
        pattern_attention(x, x[:, :2], x[:, :2], pattern="dense")
    with pytest.raises(StudioError, match=r"query must have 2 to 4 dimensions"):
        pattern_attention(x[None], x[None], x[None], pattern="dense")
    with pytest.raises(StudioError, match=r"query must have 4 dimensions \[batch, q_len, heads, head_dim\]"):
        memory_efficient_pattern_attention(x[0], x[0], x[0], pattern="dense")
