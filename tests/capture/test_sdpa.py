"""Recording from code that is no transformers model."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn.functional import scaled_dot_product_attention

from pattern_studio.capture.sdpa import recording
from pattern_studio.errors import StudioError

WORDS = {"model_name": "toy", "text": "none", "tokens": ("x",) * 6}


class Own(nn.Module):
    """Two layers of grouped causal attention with its own projections."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.q, self.kv = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x: torch.Tensor, **options: object) -> torch.Tensor:
        for _ in range(2):
            q = self.q(x).unflatten(-1, (4, 2)).transpose(1, 2)
            k, v = self.kv(x).unflatten(-1, (2, 2, 2)).permute(2, 0, 3, 1, 4)
            x = x + scaled_dot_product_attention(q, k, v, enable_gqa=True, **options).transpose(1, 2).flatten(2)
        return x


def test_each_call_is_a_layer():
    model, x = Own(), torch.randn(1, 6, 8)
    with recording(dtype=torch.float32) as seen:
        out = model(x, is_causal=True, scale=0.3)
    assert torch.equal(out, model(x, is_causal=True, scale=0.3))
    capture = seen.capture(**WORDS)
    assert (list(capture.layers), capture.causal, capture.scale) == ([0, 1], True, 0.3)
    layer = capture.layers[0]
    assert (layer.heads, layer.kv_heads) == (4, 2)
    assert torch.equal(layer.q, model.q(x)[0].unflatten(-1, (4, 2)).transpose(0, 1))
    assert not layer.q.requires_grad


@pytest.mark.parametrize("mask", [torch.ones(6, 6).bool().tril(), torch.full((6, 6), -torch.inf).triu(1)])
def test_a_causal_mask_is_known(mask):
    with recording([1], dtype=torch.float32) as seen:
        Own()(torch.randn(1, 6, 8), attn_mask=mask)
    assert seen.capture(**WORDS).causal


def test_torchs_own_layers():
    layer = nn.TransformerEncoderLayer(8, 2, batch_first=True).eval()
    with recording() as seen:
        layer(torch.randn(1, 6, 8))  # with gradients on, where torch takes no shortcut around attention
    assert seen.capture(**WORDS).layers[0].q.shape == (2, 6, 4)


def test_what_a_capture_cannot_hold():
    band = torch.ones(6, 6).bool().triu(-1).tril()
    with recording() as seen:
        Own()(torch.randn(1, 6, 8), attn_mask=band)
    with pytest.raises(
        StudioError, match=r"from any \(\{0: 'its dense mask is window\(1, 0\), neither causal nor full'"
    ):
        seen.capture(**WORDS)
    with recording(dtype=torch.float32) as seen:
        Own()(torch.randn(1, 6, 8), is_causal=True)
        Own()(torch.randn(1, 6, 8), attn_mask=band)
    with pytest.raises(StudioError, match=r"got other ones in calls \[2, 3\]; choose layers=\[0, 1\] or some"):
        seen.capture(**WORDS)
    with pytest.raises(StudioError, match=r"without dropout, got dropout_p=0.5; call model.eval\(\)"), recording():
        Own()(torch.randn(1, 6, 8), dropout_p=0.5)


def test_nothing_seen():
    with recording() as seen:
        pass
    with pytest.raises(StudioError, match="got no attention from any; choose among those met: none"):
        seen.capture(**WORDS)
