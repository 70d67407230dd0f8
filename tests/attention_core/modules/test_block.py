"""The transformer block: equal to torch's encoder layer under the same mask, and able to learn."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from attention_core.modules.block import BlockSparseTransformerBlock

from ..inputs import normal
from . import oracle


@pytest.mark.parametrize("norm_first", [True, False])
def test_equals_torchs_encoder_layer(norm_first):
    torch.manual_seed(0)
    theirs = nn.TransformerEncoderLayer(
        16, 2, 40, dropout=0.0, activation="gelu", batch_first=True, norm_first=norm_first, dtype=torch.float64
    )
    ours = BlockSparseTransformerBlock(
        16, 2, pattern="window(3, 3)", block=8, feedforward_dim=40, norm_first=norm_first, dtype=torch.float64
    )
    names = {
        "self_attn": "attention",
        "norm1": "attention_norm",
        "norm2": "feedforward_norm",
        "linear1": "feedforward.0",
        "linear2": "feedforward.2",
    }
    state = {names[n.split(".")[0]] + n[len(n.split(".")[0]) :]: t for n, t in theirs.state_dict().items()}
    ours.load_state_dict(state)
    x, padding = normal(2, 21, 16, seed=0), torch.zeros(2, 21, dtype=torch.bool)
    padding[1, 15:] = True
    mask = oracle.allowed("window(3, 3)", 21)[0]
    wanted = theirs(x, src_mask=~mask, src_key_padding_mask=padding)
    got = ours(x, key_padding_mask=padding)
    torch.testing.assert_close(got[~padding], wanted[~padding])
    assert got.isfinite().all()  # rows whose whole window is padding are NaN in torch's
    causal = ours(x, is_causal=True)
    torch.testing.assert_close(causal, theirs(x, src_mask=~(mask & oracle.allowed("causal", 21)[0])))


def test_a_stack_learns_to_copy_from_four_back():
    torch.manual_seed(0)
    embed, head = nn.Embedding(8, 32), nn.Linear(32, 8)
    place = nn.Parameter(torch.randn(40, 32) * 0.5)
    blocks = nn.Sequential(
        *(BlockSparseTransformerBlock(32, 2, pattern="causal & window(7, 0)", block=16) for _ in range(2))
    )
    parameters = [place, *embed.parameters(), *head.parameters(), *blocks.parameters()]
    optimizer = torch.optim.AdamW(parameters, lr=6e-3)
    losses = []
    for step in range(40):
        ids = torch.randint(0, 8, (16, 40), generator=torch.Generator().manual_seed(step))
        logits = head(blocks(embed(ids) + place))
        loss = nn.functional.cross_entropy(logits[:, 4:].flatten(0, 1), ids[:, :-4].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    assert losses[0] > 1.9
    assert losses[-1] < 1.0


def test_dropout_in_training_only():
    block = BlockSparseTransformerBlock(16, 2, pattern="dense", block=8, dropout=0.5)
    x = normal(1, 10, 16, seed=0, dtype=torch.float32)
    assert not torch.equal(block(x), block(x))
    block.eval()
    assert torch.equal(block(x), block(x))
