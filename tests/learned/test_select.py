"""Choices: nothing above the diagonal, budgets to the tile, items apart from each other, no wait for the device."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

import pattern_studio as ps
from pattern_studio.learned import SCORES, Tiling, predicted, top_k, top_p
from tests.learned.problems import Small, smalls

CPU = torch.device("cpu")
densities = st.floats(0.01, 1)


@given(smalls(padded=False), densities, st.integers(0, 5), st.booleans())
def test_a_budget_is_kept_to_the_tile(small: Small, density: float, sinks: int, diagonal: bool):
    tiling = small.tiling
    total, least = tiling.counts(sinks, diagonal)
    allowed = math.floor(density * total + 1e-9 * total)
    scores = SCORES["pooled"](small.q, small.k, tiling)
    if least > allowed:
        with pytest.raises(ps.StudioError, match=f"pays for {allowed:,} of the {total:,} visible tiles, but"):
            top_k(scores, tiling, density, sinks=sinks, diagonal=diagonal)
        return
    mask = top_k(scores, tiling, density, sinks=sinks, diagonal=diagonal)
    assert (mask.sum((2, 3)) == allowed).all()
    kept = tiling.sinks(CPU, sinks) | (tiling.diagonal(CPU) if diagonal else False)
    assert (mask | ~kept).all()
    # Of each row's free tiles the best: the worst chosen is no worse than the best that is left out.
    visible = tiling.visible(CPU)
    worst = torch.where(mask & ~kept, scores, math.inf).amin(-1)
    best = torch.where(~mask & visible, scores, -math.inf).amax(-1)
    assert (worst >= best).all()
    # Rows share in proportion to what is visible beside the protected tiles, to less than a tile.
    extra, free = (mask & ~kept).sum(-1).double(), (visible & ~kept).sum(-1).double()
    assert ((extra - free * (allowed - least) / free.sum().clamp(min=1)).abs() < 1 + 1e-9).all()


@given(smalls(), st.floats(0.05, 1), st.integers(0, 3), st.booleans(), st.sampled_from(["pooled", "probes"]))
def test_never_a_tile_without_an_allowed_pair(small: Small, amount: float, sinks: int, diagonal: bool, name: str):
    tiling, total = small.tiling, small.tiling.counts(sinks, diagonal)
    scores = SCORES[name](small.q, small.k, tiling, lengths=small.lengths)
    density = max(amount, total[1] / max(total[0], 1)) or 1.0
    for mask in (
        top_k(scores, tiling, density, sinks=sinks, diagonal=diagonal, lengths=small.lengths),
        top_p(scores, tiling, amount, sinks=sinks, diagonal=diagonal, lengths=small.lengths),
    ):
        for item in range(len(small.q)):
            assert not (mask[item] & ~(small.tiles(small.allowed(item)) > 0)).any()


@given(smalls(), st.floats(0.05, 1), st.booleans())
def test_coverage_is_reached_by_the_fewest_tiles(small: Small, coverage: float, diagonal: bool):
    tiling = small.tiling
    scores = SCORES["pooled"](small.q, small.k, tiling, lengths=small.lengths)
    mask = top_p(scores, tiling, coverage, sinks=1, diagonal=diagonal, lengths=small.lengths)
    visible = tiling.visible(CPU, small.lengths)[:, None]
    kept = (tiling.sinks(CPU, 1, small.lengths) | (tiling.diagonal(CPU, small.lengths) if diagonal else False))[:, None]
    mass = predicted(scores, visible)
    reached = torch.where(mask, mass, 0).sum(-1)
    alive = visible.any(-1).expand_as(reached)
    assert (reached[alive] >= coverage - 1e-8).all()
    assert not mask[~alive].any()
    # Without its worst free tile a row does not reach it.
    spare = torch.where(mask & ~kept, mass, math.inf).amin(-1)
    some = torch.isfinite(spare)
    assert (reached[some] - spare[some] < coverage).all()


@given(smalls(unit=2), st.sampled_from(sorted(SCORES)), st.floats(0.1, 1), st.data())
def test_a_permuted_batch_gives_the_permuted_choice(small: Small, name: str, amount: float, data):
    """Bit by bit for the choice; a score may differ in its last bit with the item's place in memory (vector tails)."""
    order = data.draw(st.permutations(range(len(small.q))))
    stride = {"stride": 2} if name == "antidiagonal" else {}
    lengths = None if small.lengths is None else small.lengths[order]
    scores = SCORES[name](small.q, small.k, small.tiling, lengths=small.lengths, **stride)
    again = SCORES[name](small.q[order], small.k[order], small.tiling, lengths=lengths, **stride)
    for choose in (top_k, top_p):
        mask = choose(scores, small.tiling, amount, sinks=0, diagonal=False, lengths=small.lengths)
        moved = choose(scores[order], small.tiling, amount, sinks=0, diagonal=False, lengths=lengths)
        assert torch.equal(mask[order], moved)
    torch.testing.assert_close(scores[order], again, atol=1e-5, rtol=1e-5)


@given(smalls(padded=True, unit=2, whole=True), st.sampled_from(sorted(SCORES)), st.floats(0.1, 1))
def test_padding_changes_nothing(small: Small, name: str, amount: float):
    """Each item alone, cut to its length, is chosen as in the padded batch; padding holds NaN."""
    stride = {"stride": 2} if name == "antidiagonal" else {}
    lengths = small.lengths
    assert lengths is not None
    padding = (torch.arange(small.tiling.q_len) >= lengths[:, None])[:, None, :, None]
    q, k = (x.masked_fill(padding, math.nan) for x in (small.q, small.k))
    scores = SCORES[name](q, k, small.tiling, lengths=lengths, **stride)
    masks = {f: f(scores, small.tiling, amount, sinks=0, diagonal=False, lengths=lengths) for f in (top_k, top_p)}
    for item, length in enumerate(lengths.tolist()):
        if not length:
            assert not masks[top_k][item].any()
            assert not masks[top_p][item].any()
            continue
        one = small.q[item : item + 1, :, :length], small.k[item : item + 1, :, :length]
        alone = Tiling.of(*one, small.tiling.block, causal=small.tiling.causal)
        own = SCORES[name](*one, alone, **stride)
        torch.testing.assert_close(scores[item, :, : alone.q_blocks, : alone.kv_blocks], own[0], atol=1e-5, rtol=1e-5)
        for choose, mask in masks.items():
            expected = torch.zeros_like(mask[item])
            if name != "pooled":  # their softmax may differ in the last bit, and so in the choice among ties
                own = scores[item : item + 1, :, : alone.q_blocks, : alone.kv_blocks]
            found = choose(own, alone, amount, sinks=0, diagonal=False)
            expected[:, : alone.q_blocks, : alone.kv_blocks] = found[0]
            assert torch.equal(mask[item], expected)


@pytest.mark.parametrize("length", [300, 1024])
@pytest.mark.parametrize(
    ("name", "block"),
    # Single keys have no antidiagonal.
    [(n, b) for n in sorted(SCORES) for b in ((64, 64), (64, 1), (128, 8)) if n != "antidiagonal" or b[1] > 1],
)
def test_real_items_are_chosen_alike_alone_and_in_a_padded_batch(name, length, block, real):
    """The whole way on the bundled q and k, bit by bit, beside a neighbour that is longer and one that is noise."""
    q, k = real
    noise = torch.Generator().manual_seed(0)
    pad = 1024 - length
    batch_q = torch.cat(
        [torch.nn.functional.pad(q[:, :, :length], (0, 0, 0, pad)), q, torch.randn(q.shape, generator=noise)]
    )
    batch_k = torch.cat(
        [torch.nn.functional.pad(k[:, :, :length], (0, 0, 0, pad)), k, torch.randn(k.shape, generator=noise)]
    )
    lengths = torch.tensor([length, 1024, 700])
    tiling = Tiling.of(batch_q, batch_k, block)
    mask = top_k(SCORES[name](batch_q, batch_k, tiling, lengths=lengths), tiling, 0.65, lengths=lengths)
    own_q, own_k = q[:, :, :length], k[:, :, :length]
    alone = Tiling.of(own_q, own_k, block)
    found = top_k(SCORES[name](own_q, own_k, alone), alone, 0.65)
    assert torch.equal(mask[0, :, : alone.q_blocks, : alone.kv_blocks], found[0])
    assert int(mask[0].sum()) == int(found.sum())


@pytest.fixture(scope="module")
def real():
    from pattern_studio.capture import bundled

    layer = bundled().layers[20]
    return layer.q[None].float(), layer.k[None].float()


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("padded", [True, False])
def test_nothing_waits_for_the_device(causal, padded):
    """Tensors of the meta device have no values: whatever asked for one would raise."""
    q, k = (torch.empty(2, heads, 70, 8, device="meta") for heads in (4, 2))
    lengths = torch.empty(2, dtype=torch.int64, device="meta") if padded else None
    tiling = Tiling.of(q, k, (16, 8), causal=causal)
    for score in SCORES.values():
        scores = score(q, k, tiling, lengths=lengths)
        for mask in (top_k(scores, tiling, 0.5, lengths=lengths), top_p(scores, tiling, 0.5, lengths=lengths)):
            assert mask.shape == (2, 4, 5, 9)
            assert (mask.device.type, mask.dtype) == ("meta", torch.bool)


@given(st.sampled_from([math.nan, math.inf, -math.inf]), st.booleans())
def test_wild_scores_cannot_displace_what_is_protected(value, mixed):
    tiling = Tiling(40, 40, (8, 8))
    scores = torch.full((1, 1, 5, 5), value)
    scores[..., 1] = scores[..., 1] if mixed else 0
    mask = top_k(scores, tiling, 0.7)
    assert int(mask.sum()) == 10
    assert (mask | ~(tiling.diagonal(CPU) | tiling.sinks(CPU, 1))).all()


def test_equal_scores_go_to_the_lower_key():
    tiling = Tiling(4, 4, (4, 1), causal=False)
    mask = top_k(torch.zeros(1, 1, 1, 4), tiling, 0.5, sinks=0, diagonal=False)
    np.testing.assert_array_equal(mask[0, 0].int(), [[1, 1, 0, 0]])


def test_a_density_that_pays_for_too_little():
    tiling = Tiling(1024, 1024, (64, 64))
    with pytest.raises(ps.StudioError) as caught:
        top_k(torch.zeros(1, 1, 16, 16), tiling, 0.1)
    assert str(caught.value) == (
        "a block density of 0.1 pays for 13 of the 136 visible tiles, but the protected sinks and diagonal take 31: "
        "ask for at least 0.228, protect fewer (sinks=0, diagonal=False), or take smaller query blocks"
    )
    assert int(top_k(torch.zeros(1, 1, 16, 16), tiling, 0.228).sum()) == 31


@pytest.mark.parametrize("amount", [0, 1.5, True, "0.1"])
def test_amounts_that_are_none(amount):
    tiling = Tiling(4, 4, (2, 2))
    with pytest.raises(ps.StudioError, match="a block density lies above 0 and up to 1, got"):
        top_k(torch.zeros(1, 1, 2, 2), tiling, amount)
    with pytest.raises(ps.StudioError, match="a coverage lies above 0 and up to 1, got"):
        top_p(torch.zeros(1, 1, 2, 2), tiling, amount)


def test_scores_and_lengths_that_do_not_fit():
    tiling = Tiling(4, 4, (2, 2))
    with pytest.raises(
        ps.StudioError, match=r"expected scores \[batch, heads, 2, 2\] for this tiling, got \[1, 1, 3, 2\]"
    ):
        top_k(torch.zeros(1, 1, 3, 2), tiling, 1.0)
    with pytest.raises(
        ps.StudioError, match=r"expected lengths as int64 \[1\], one per batch item, got \[2\] torch.int64"
    ):
        top_k(torch.zeros(1, 1, 2, 2), tiling, 1.0, lengths=torch.tensor([1, 2]))


@given(smalls(padded=False))
def test_all_of_it_is_the_dense_mask(small: Small):
    assume(small.tiling.counts(0, False)[0])
    scores = SCORES["pooled"](small.q, small.k, small.tiling)
    visible = small.tiling.visible(CPU)[:, None].expand_as(scores)
    assert torch.equal(top_k(scores, small.tiling, 1.0), visible)
    assert torch.equal(top_p(scores, small.tiling, 1.0), visible)
