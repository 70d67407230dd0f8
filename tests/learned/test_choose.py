"""choose() keeps the tiles that scoring and then choosing keeps, by programs and without."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from torch import Tensor

import pattern_studio as ps
from pattern_studio.learned import SCORES, Narrowed, Tiling, choose, mean_query, pooled, programs, top_k
from pattern_studio.learned.programs import chosen, means

PHASES = tuple(phase for phase in Phase if phase is not Phase.shrink)  # interpreted programs are slow
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
few = settings(
    max_examples=15, deadline=None, phases=PHASES, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@pytest.fixture
def by_programs(monkeypatch):
    """Triton's interpreter stands for the card where there is none."""
    monkeypatch.setattr(programs, "on_device", lambda x: True)


@st.composite
def problems(draw, whole: bool = False) -> tuple[Tensor, Tensor, Tiling, Tensor | None]:
    """q and k in half precision, ragged and offset; padding holds NaN. `whole` numbers have scores that tie."""
    batch, kv_heads, share, dim = draw(st.integers(1, 2)), *(draw(st.integers(1, 2)) for _ in "ks"), 24
    q_len, extra = draw(st.integers(1, 90)), draw(st.integers(0, 40))
    block = draw(st.sampled_from([(16, 16), (32, 8), (8, 1), (24, 40), (64, 128)]))
    tiling = Tiling(q_len, q_len + extra, block, draw(st.sampled_from([None, 0])), draw(st.booleans()))
    made = torch.Generator().manual_seed(draw(st.integers(0, 999)))
    q, k = (torch.randn(batch, heads, n, dim, generator=made) for heads, n in
            ((kv_heads * share, q_len), (kv_heads, q_len + extra)))  # fmt: skip
    if whole:
        q, k = q.round(), (k * (torch.rand(k.shape[:3], generator=made) < 0.3)[..., None]).round()
    lengths = None
    if draw(st.booleans()) and tiling.offset == extra:
        lengths = torch.randint(0, q_len + extra + 1, (batch,), generator=made)
        for item, own in enumerate(lengths.tolist()):
            k[item, :, own:], q[item, :, max(own - extra, 0) :] = torch.nan, torch.nan
        lengths = lengths.to(DEVICE)
    return q.to(DEVICE, torch.float16), k.to(DEVICE, torch.float16), tiling, lengths


def protections(tiling: Tiling, density: float, lengths: Tensor | None) -> list[dict]:
    """The ways of protecting tiles that the density pays for."""
    ways = [{"sinks": n, "diagonal": diagonal} for n in (0, 1, 9) for diagonal in (False, True)]
    total = tiling.counts(0, False)[0]
    paid = [way for way in ways if lengths is not None or tiling.counts(**way)[1] <= math.floor(total * density)]
    return paid or ways[:1]


@few
@given(problem=problems(), density=st.floats(0.02, 1), data=st.data())
def test_the_program_chooses_as_the_two_calls_do(by_programs, problem, density, data):
    q, k, tiling, lengths = problem
    way = data.draw(st.sampled_from(protections(tiling, density, lengths)))
    got = choose(pooled, q, k, tiling, density, lengths=lengths, **way)
    assert torch.equal(got, top_k(pooled(q, k, tiling, lengths=lengths), tiling, density, lengths=lengths, **way))
    assert (got.dtype, got.device) == (torch.bool, q.device)


@few
@given(problem=problems(whole=True), density=st.floats(0.1, 1), data=st.data())
def test_the_program_chooses_as_torch_does_where_scores_tie(monkeypatch, problem, density, data):
    """Blocks of powers of two have exact means of whole numbers, if their counts are equal: scores tie for both."""
    q, k, tiling, lengths = problem
    if tiling.block[0] & (tiling.block[0] - 1) or tiling.block[1] & (tiling.block[1] - 1) or lengths is not None:
        tiling = Tiling(tiling.q_len, tiling.kv_len, (16, 16), tiling.offset, tiling.causal)
    q, k = q.nan_to_num(), k.nan_to_num()
    way = data.draw(st.sampled_from(protections(tiling, density, None)))
    found = []
    for wanted in (True, False):
        monkeypatch.setattr(programs, "on_device", lambda x, wanted=wanted: wanted)
        scores = pooled(q, k, tiling, scale=1.0)
        found.append((scores, choose(pooled, q, k, tiling, density, scale=1.0, **way)))
    (ours, got), (theirs, expected) = found
    torch.testing.assert_close(ours, theirs, atol=2e-2, rtol=2e-2)
    if torch.equal(ours, theirs):
        assert torch.equal(got, expected)
    assert torch.equal(got.sum(-1), expected.sum(-1))


@pytest.mark.filterwarnings("ignore:invalid value encountered in matmul:RuntimeWarning")  # NaN is the point
@few
@given(data=st.data())
def test_any_scores_are_chosen_from_exactly(data):
    """Means of one dimension, so that the scores are what is drawn: ties, both zeros, NaN and infinities."""
    rows, tiles = data.draw(st.integers(1, 40)), data.draw(st.integers(1, 70))
    tiling = Tiling(rows, tiles, (1, 1), data.draw(st.integers(-3, tiles)), data.draw(st.booleans()))
    made = torch.Generator().manual_seed(data.draw(st.integers(0, 999)))
    drawn = torch.randint(-2, 3, (1, 1, tiles), generator=made) * data.draw(st.sampled_from([0.0, -0.0, 1.0, 1e-6]))
    drawn = drawn + data.draw(st.sampled_from([0, 1])) * torch.randn(drawn.shape, generator=made)
    odd = torch.rand(drawn.shape, generator=made)
    drawn[odd < 0.05], drawn[odd > 0.95], drawn[(odd > 0.5) & (odd < 0.55)] = torch.nan, torch.inf, -torch.inf
    q, k = torch.ones(1, 1, rows, 1), drawn[..., None]
    both = torch.cat([q.flatten(0, 2), k.flatten(0, 2)]).half().to(DEVICE)
    scores = (q.half().float() @ k.half().float().mT).to(DEVICE)
    density, way = data.draw(st.floats(0.05, 1)), {"sinks": 1, "diagonal": data.draw(st.booleans())}
    lengths = torch.tensor([max(rows, tiles)], device=DEVICE)  # so that no density pays for too little
    visible = tiling.visible(scores.device, lengths)
    kept = tiling.sinks(scores.device, 1, lengths)
    if way["diagonal"]:
        kept = kept | tiling.diagonal(scores.device, lengths)
    expected = top_k(scores, tiling, density, lengths=lengths, **way)
    frame = chosen.Rows.of(visible, kept, expected.sum(-1)[0])
    got = chosen.chosen_of_means(both, torch.zeros(tiles, device=DEVICE), (1, 1, 1), frame)
    assert torch.equal(got, expected)


@pytest.mark.parametrize("tiles", [255, 256, 512, 1000])
def test_rows_as_long_as_the_program_takes(by_programs, tiles):
    made = torch.Generator().manual_seed(tiles)
    q, k = (torch.randn(1, heads, 2 * tiles, 16, generator=made).to(DEVICE, torch.float16) for heads in (2, 1))
    q, tiling = q[:, :, -70:], Tiling(70, 2 * tiles, (16, 2))
    scores = pooled(q, k, tiling)
    for density in (0.05, 0.1):
        assert torch.equal(choose(pooled, q, k, tiling, density), top_k(scores, tiling, density))


def test_means_are_those_of_each_block():
    made = torch.Generator().manual_seed(0)
    q, k = (torch.randn(2, heads, n, 24, generator=made).to(DEVICE) for heads, n in ((4, 70), (2, 41)))
    rows = torch.rand(2, 70, generator=made).to(DEVICE) < 0.7
    q = q.transpose(1, 2).contiguous().transpose(1, 2)  # any strides
    out, weight = means.means_of_blocks(q, k, (32, 600), 0.5, rows, None)
    for item in range(2):
        for block, (first, last) in enumerate(((0, 32), (32, 64), (64, 70))):
            wanted = q[item, :, first:last][:, rows[item, first:last]].double().mean(1) * 0.5
            got = out[: 2 * 4 * 3].view(2, 4, 3, 24)[item, :, block]
            torch.testing.assert_close(got.double(), wanted, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(out[24:].view(2, 2, 24), k.mean(2), atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(weight, torch.full_like(weight, math.log(41)), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("score", [pooled, mean_query])
def test_an_item_is_chosen_the_same_whoever_is_beside_it(by_programs, score):
    made = torch.Generator().manual_seed(3)
    q, k = (torch.randn(2, heads, 96, 16, generator=made).to(DEVICE, torch.float16) for heads in (4, 2))
    tiling, lengths = Tiling(96, 96, (16, 16)), torch.tensor([96, 50], device=DEVICE)
    beside = choose(score, q, k, tiling, 0.6, lengths=lengths)
    assert torch.equal(beside[:1], choose(score, q[:1], k[:1], tiling, 0.6))


def test_two_programs_are_started_for_it(by_programs, monkeypatch):
    started: list[str] = []

    def noting(program, *given, launch=means.launch, **constants):
        started.append(program.fn.__name__)
        launch(program, *given, **constants)

    for module in (means, chosen):
        monkeypatch.setattr(module, "launch", noting)
    q, k = (torch.randn(1, heads, 64, 16, device=DEVICE).half() for heads in (2, 1))
    choose(pooled, q, k, Tiling(64, 64, (8, 8)), 0.5)
    assert started == ["means", "chosen"]
    # Single precision, long rows and functions of one's own are scored, then chosen from.
    del started[:]
    choose(pooled, q.float(), k.float(), Tiling(64, 64, (8, 8)), 0.5)
    monkeypatch.setattr(chosen, "LONGEST", 7)
    choose(pooled, q, k, Tiling(64, 64, (8, 8)), 0.5)
    choose(lambda *given, **options: pooled(*given, **options), q, k, Tiling(64, 64, (16, 16)), 0.9)
    assert started == ["means", "means", "means", "chosen"]


@pytest.mark.parametrize("name", sorted(SCORES))
def test_every_score_is_taken_without_programs(name):
    made = torch.Generator().manual_seed(1)
    q, k = (torch.randn(1, heads, 64, 8, generator=made) for heads in (2, 1))
    q.requires_grad_()
    tiling = Tiling(64, 64, (16, 16))
    found = choose(SCORES[name], q, k, tiling, 0.8, scale=0.3)
    assert torch.equal(found, top_k(SCORES[name](q, k, tiling, scale=0.3), tiling, 0.8))


def test_masks_of_any_kind_go_to_a_score_that_takes_them():
    made = torch.Generator().manual_seed(2)
    q, k = (torch.randn(2, heads, 48, 8, generator=made) for heads in (2, 1))
    tiling = Tiling(48, 48, (8, 8))
    narrowed = Narrowed(keys=torch.arange(48)[None] >= torch.tensor([[0], [20]]))
    scores = mean_query(q, k, tiling, narrowed=narrowed)
    found = choose(mean_query, q, k, tiling, 0.6, narrowed=narrowed)
    assert torch.equal(found, top_k(scores, tiling, 0.6, narrowed=narrowed))


@pytest.mark.parametrize("programmed", [True, False])
def test_errors_are_those_of_the_two_calls(monkeypatch, programmed):
    monkeypatch.setattr(programs, "on_device", lambda x: programmed)
    q, k = (torch.zeros(1, heads, 64, 8, device=DEVICE).half() for heads in (2, 1))
    tiling = Tiling(64, 64, (8, 8))
    with pytest.raises(ps.StudioError, match="a block density lies above 0 and up to 1, got 2"):
        choose(pooled, q, k, tiling, 2)
    with pytest.raises(ps.StudioError, match=r"a block density of 0\.1 pays for 3 of the 36 visible tiles"):
        choose(pooled, q, k, tiling, 0.1)
    with pytest.raises(ps.StudioError, match=r"expected lengths as int64 \[1\], one per batch item"):
        choose(pooled, q, k, tiling, 0.5, lengths=torch.ones(3, dtype=torch.int64, device=DEVICE))


@pytest.mark.filterwarnings("ignore:Dynamo detected a call to a `functools.lru_cache`-wrapped:UserWarning")
def test_a_compiler_traces_the_two_calls():
    q, k = (torch.randn(1, heads, 64, 8, device=DEVICE) for heads in (2, 1))
    tiling = Tiling(64, 64, (16, 16))
    expected = choose(pooled, q, k, tiling, 0.8)
    found = torch.compile(lambda q, k: choose(pooled, q, k, tiling, 0.8), backend="eager", fullgraph=False)(q, k)
    assert torch.equal(found, expected)
