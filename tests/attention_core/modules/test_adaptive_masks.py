"""Adaptive modules under padding and attention masks: exact, blind to what is blocked, and each item by itself."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from attention_core import AdaptiveBlockSparseMultiheadAttention, create_block_sparse_multihead_attention
from attention_core.modules.chosen import Chosen
from pattern_studio.problem import Problem

from . import oracle
from .pairs import projected

LENGTH, BATCH, HEADS = 37, 3, 4


def gated(**options):
    torch.manual_seed(0)
    given = {"block": (8, 4), "density": 0.4, "dtype": torch.float64} | options
    made = AdaptiveBlockSparseMultiheadAttention(16, HEADS, **given)
    with torch.no_grad():  # sharp enough that choices differ
        made.in_proj_weight.mul_(3)
        for parameter in made.gate.parameters():
            parameter.copy_(torch.randn_like(parameter) * 0.1)
    return made


def by_content(dtype=torch.float64, **options):
    torch.manual_seed(0)
    made = create_block_sparse_multihead_attention(16, HEADS, 0.4, block_size=(8, 4), dtype=dtype)
    with torch.no_grad():
        made.in_proj_weight.mul_(3)
    made.set_adaptive(**options)
    return made


MODULES = {"gate": gated, "content": by_content}


def inputs(length: int = LENGTH) -> torch.Tensor:
    return torch.randn(BATCH, length, 16, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def padding(kind: str) -> torch.Tensor:
    """True is padding, bool [batch, length]; item 0 has none."""
    position, many = torch.arange(LENGTH), torch.tensor([0, 5, 30])[:, None]
    if kind == "right":
        return position >= LENGTH - many
    if kind == "left":
        return position < many
    holes = torch.rand(BATCH, LENGTH, generator=torch.Generator().manual_seed(2)) < 0.3
    return holes & (torch.arange(BATCH)[:, None] > 0)


def blocked(kind: str) -> torch.Tensor | None:
    generator = torch.Generator().manual_seed(3)
    if kind == "none":
        return None
    if kind == "causal":
        return nn.Transformer.generate_square_subsequent_mask(LENGTH, dtype=torch.float64)
    shape = (LENGTH, LENGTH) if kind == "pairs" else (BATCH * HEADS, LENGTH, LENGTH)
    return torch.rand(shape, generator=generator) < 0.3


@pytest.mark.parametrize("which", MODULES)
@pytest.mark.parametrize("masked", ["none", "causal", "pairs", "heads"])
@pytest.mark.parametrize("padded", ["right", "left", "holes"])
def test_exact_under_its_choice_and_the_masks(which, masked, padded):
    ours, x, pads, mask = MODULES[which](), inputs(), padding(padded), blocked(masked)
    got, weights = ours(x, x, x, pads, need_weights=False, attn_mask=mask)
    assert weights is None
    tiles, block = ours._chosen.tiles, ours._chosen.block
    allowed = tiles.repeat_interleave(block[0], 2).repeat_interleave(block[1], 3)[:, :, :LENGTH, :LENGTH]
    allowed = allowed & ~pads[:, None, None]
    if mask is not None:
        seen = mask == 0 if mask.is_floating_point() else ~mask
        allowed = allowed & (seen if mask.ndim == 2 else seen.unflatten(0, (BATCH, HEADS)))
    q, k, v = projected(ours, x)
    out = oracle.attention(q, k, v, allowed)
    wanted = ours.out_proj(out.transpose(1, 2).flatten(2))
    oracle.close(got, wanted, 1e-10)
    again, weights = ours(x, x, x, pads, need_weights=True, attn_mask=mask, average_attn_weights=False)
    oracle.close(again, wanted, 1e-10)
    assert not weights[~allowed].any()
    parameters = [ours.in_proj_weight, ours.out_proj.bias]
    real = ~pads
    for mine, theirs in zip(
        torch.autograd.grad(got[real].square().sum(), parameters),
        torch.autograd.grad(wanted[real].square().sum(), parameters),
        strict=True,
    ):
        oracle.close(mine, theirs, 1e-9)
    # No tile is chosen in which the masks leave nothing: the budget is spent on what can be seen.
    table = torch.nn.functional.pad(allowed, (0, -LENGTH % block[1], 0, -LENGTH % block[0]))
    rows = table.unflatten(-1, (-1, block[1])).any(-1).unflatten(-2, (-1, block[0])).any(-2)
    assert torch.equal(rows & tiles, tiles)


@pytest.mark.parametrize("which", MODULES)
@pytest.mark.parametrize("causal", [True, False])
def test_an_item_is_as_it_is_alone_and_padding_is_not_read(which, causal):
    ours, x, pads = MODULES[which](density=0.6), inputs(), padding("right")
    poisoned = torch.where(pads[..., None], torch.nan, x)
    together, _ = ours(poisoned, poisoned, poisoned, pads, need_weights=False, is_causal=causal)
    tiles = ours._chosen.tiles
    for n in range(BATCH):
        length = int((~pads[n]).sum())
        one = x[n : n + 1, :length]
        if length < 16:
            continue  # alone it is too short for these blocks at this density
        alone, _ = ours(one, one, one, need_weights=False, is_causal=causal)
        own = ours._chosen.tiles
        assert torch.equal(tiles[n : n + 1, :, : own.shape[2], : own.shape[3]], own)
        assert int(tiles[n].sum()) == int(own.sum())
        oracle.close(together[n : n + 1, :length], alone, 1e-10)


@pytest.mark.parametrize("which", MODULES)
def test_neighbours_have_no_say(which):
    ours, x, pads = MODULES[which](), inputs(), padding("holes")
    before, _ = ours(x, x, x, pads, need_weights=False)
    chosen = ours._chosen.tiles
    x[1:] = 7 * x[1:].flip(1)
    after, _ = ours(x, x, x, pads, need_weights=False)
    assert torch.equal(chosen[0], ours._chosen.tiles[0])
    oracle.close(after[0], before[0], 1e-12)
    assert not torch.equal(chosen[1], ours._chosen.tiles[1])


@pytest.mark.parametrize("masked", ["none", "causal", "pairs", "heads"])
def test_with_all_mass_it_is_nn_multihead_attention(masked):
    ours = gated(density=None, quality_threshold=1.0)
    theirs = nn.MultiheadAttention(16, HEADS, batch_first=True, dtype=torch.float64)
    ours.load_state_dict(theirs.state_dict(), strict=False)
    x, pads, mask = inputs(), padding("right"), blocked(masked)
    same = mask == -torch.inf if masked == "causal" else mask
    want, weights = theirs(x, x, x, pads, attn_mask=same)
    got, mine = ours(x, x, x, pads, need_weights=True, attn_mask=mask)
    rows = ~pads & want.isfinite().all(-1)
    assert rows.any(1).all()
    oracle.close(got[rows], want[rows], 1e-10)
    oracle.close(mine[rows], weights[rows], 1e-10)
    assert got.isfinite().all()


def test_a_finite_float_mask_is_added():
    ours = gated(density=None, quality_threshold=1.0)
    theirs = nn.MultiheadAttention(16, HEADS, batch_first=True, dtype=torch.float64)
    ours.load_state_dict(theirs.state_dict(), strict=False)
    x = inputs()
    mask = torch.randn(LENGTH, LENGTH, generator=torch.Generator().manual_seed(4), dtype=torch.float64)
    mask[:, 20:25] = -torch.inf
    oracle.close(ours(x, attn_mask=mask)[0], theirs(x, x, x, attn_mask=mask)[0], 1e-10)


def test_unbatched_and_lengths_first():
    ours, x, pads = gated(), inputs(), padding("right")
    wanted, _ = ours(x, key_padding_mask=pads, is_causal=True)
    one, weights = ours(x[1], key_padding_mask=pads[1], is_causal=True, need_weights=True)
    assert weights.shape == (LENGTH, LENGTH)
    oracle.close(one, wanted[1], 1e-12)
    first = gated(batch_first=False)
    turned = x.transpose(0, 1)
    oracle.close(first(turned, key_padding_mask=pads, is_causal=True)[0].transpose(0, 1), wanted, 1e-12)


def test_the_gate_learns_from_what_is_real_alone():
    ours, x, pads = gated(), inputs(), padding("right")
    poisoned = torch.where(pads[..., None], torch.nan, x)
    loss = ours.gate_loss(poisoned, key_padding_mask=pads, is_causal=True)
    oracle.close(loss, ours.gate_loss(x, key_padding_mask=pads, is_causal=True), 1e-6)
    loss.backward()
    assert all(p.grad.isfinite().all() and p.grad.abs().sum() > 0 for p in ours.gate.parameters())
    kept = ours.measured(poisoned, key_padding_mask=pads, is_causal=True)
    assert 0 < kept.recall < 1
    ours(x, key_padding_mask=pads, is_causal=True)
    rows = [range(0, length, 8) for length in (LENGTH - pads.sum(1)).tolist()]
    visible = [len(range(0, min(row + 8, rows[n].stop), 4)) for n in range(BATCH) for row in rows[n]]
    assert kept.block_density == pytest.approx(int(ours._chosen.tiles.sum()) / (HEADS * sum(visible)))


def test_a_row_without_keys_gives_the_bias_and_finite_gradients():
    ours, x = gated(), inputs()
    pads = torch.zeros(BATCH, LENGTH, dtype=torch.bool)
    pads[1] = True
    nn.init.normal_(ours.out_proj.bias)
    for need in (True, False):
        out, _ = ours(x, key_padding_mask=pads, need_weights=need)
        assert torch.equal(out[1], ours.out_proj.bias.expand_as(out[1]))
        grads = torch.autograd.grad(out.square().sum(), [ours.in_proj_weight, ours.out_proj.weight])
        assert all(grad.isfinite().all() for grad in grads)


@pytest.mark.parametrize("which", MODULES)
@pytest.mark.parametrize(("batch", "q_len", "kv_len"), [(0, 5, 5), (2, 0, 0), (2, 0, 4), (2, 3, 0)])
def test_empty_batch_and_lengths(which, batch, q_len, kv_len):
    ours = MODULES[which]()
    query = torch.ones(batch, q_len, 16, dtype=torch.float64)
    key = torch.ones(batch, kv_len, 16, dtype=torch.float64)
    for need in (True, False):
        out, weights = ours(query, key, key, need_weights=need)
        assert torch.equal(out, ours.out_proj.bias.expand(batch, q_len, 16))  # no key, or no query
        assert (weights is not None) == need
        if need:
            assert weights.shape == (batch, q_len, kv_len)


@pytest.mark.filterwarnings("ignore:The .grad attribute")  # torch looks at results of a graph break itself
@pytest.mark.parametrize("which", MODULES)
def test_under_autocast_and_compiled(which):
    ours, x, pads = MODULES[which](dtype=None).float(), inputs().float(), padding("right")
    wanted, _ = ours(x, x, x, pads, need_weights=False)
    torch._dynamo.reset()
    compiled = torch.compile(ours, backend="eager")
    got, _ = compiled(x, x, x, pads, need_weights=False)
    oracle.close(got, wanted, 1e-6)
    got.sum().backward()
    assert ours.in_proj_weight.grad.isfinite().all()
    with torch.autocast("cpu", torch.bfloat16):
        half, _ = ours(x, x, x, pads, need_weights=False)
    assert half.dtype == torch.bfloat16
    oracle.close(half[~pads], wanted[~pads], 0.1)


def test_cached_decoding_keeps_a_querys_own_tile():
    ours, x = gated(), inputs()
    last = x[:, -5:].clone()
    ours(last, x, x, is_causal=True)
    tiles = ours._chosen.tiles  # [batch, heads, 1, 10]: rows 32 to 36 of 37
    assert tiles[..., 8:].all()
    assert tiles[..., 0].all()


@st.composite
def choices(draw) -> Chosen:
    q_len, kv_len = draw(st.integers(0, 20)), draw(st.integers(0, 20))
    block, batch, heads = (draw(st.integers(1, 6)), draw(st.integers(1, 6))), draw(st.integers(1, 3)), 2
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**31)))

    def some(*shape: int) -> torch.Tensor:
        return torch.rand(*shape, generator=generator) < draw(st.sampled_from([0.1, 0.5, 0.95]))

    tiles = some(batch, heads, -(-q_len // block[0]), -(-kv_len // block[1]))
    keys = some(batch, kv_len) if draw(st.booleans()) else None
    shape = draw(st.sampled_from([1, batch])), draw(st.sampled_from([1, heads]))
    pairs = some(*shape, q_len, kv_len) if draw(st.booleans()) else None
    return Chosen(tiles, Problem(q_len, kv_len, heads=heads), block, draw(st.booleans()), keys, pairs)


@settings(max_examples=150)
@given(choices())
def test_the_layout_holds_exactly_the_allowed_pairs(chosen: Chosen):
    layout, wanted = chosen.layout().validate(), chosen.allowed().flatten(0, 1)
    assert layout.problem.heads == len(wanted)
    for head, table in enumerate(wanted):
        assert torch.equal(torch.from_numpy(layout.expand(head)), table)
    assert layout.pairs == int(wanted.sum())
