"""The doctor: what it says of cases worked out by hand, and that its advice, followed, exports the same pairs."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import pattern_studio as ps
from pattern_studio.cli import main
from pattern_studio.exporters import Diagnosis, _tiles, check, doctor, targets
from tests.exporters.consumers import arrays

HEADS = ps.parse("heads({range(0, 2): causal & window(63, 0), 2: chunk(64), 3: chunk(64)})")


def wanted(diagnosis: Diagnosis) -> None:
    """Follow the advice: every export succeeds, and where it says that pairs stay, they are the pattern's."""
    asked = diagnosis.asked
    files = diagnosis.export()
    assert len(files) == len(diagnosis.cases) > 0
    assert sorted(head for case in diagnosis.cases for head in case.heads) == sorted(set(asked.heads))
    keeps = all(finding.keeps for finding in diagnosis.findings)
    own = ps.dense_mask(asked.pattern, asked.problem, block=asked.block, layer=asked.layer)
    for case, file in zip(diagnosis.cases, files, strict=True):
        assert file.fidelity.kind == (case.allow or "exact")
        assert case.head_dim is None or case.head_dim >= asked.head_dim
        if keeps:
            assert not case.allow
            held = ps.dense_mask(case.pattern, case.problem, block=case.block, layer=case.layer)
            for place, head in enumerate(case.heads):
                rows = held[place, case.rows.start : case.rows.stop]
                np.testing.assert_array_equal(rows[:, : asked.problem.kv_len], own[head])
                assert not rows[:, asked.problem.kv_len :].any(), "keys of the padding are not seen"


# pattern, problem, block, target, more arguments, the advice in order
CASES = {
    "divisibility": ("chunk(64)", ps.Problem(192), 48, "deepspeed", {}, ["lower it at block 64 x 64"]),
    "ragged length": (
        "causal & chunk(128)",
        ps.Problem(200),
        100,
        "xformers",
        {},
        ["lower it at block 128 x 128", "pad q, k and v to 256 queries and 256 keys"],
    ),
    "padding that would be seen": (
        "chunk(256)",
        ps.Problem(200),
        128,
        "flash_attention_4",
        {},
        ["pad q, k and v to 256 queries and 256 keys, whose keys the pattern leaves out", "take the cover"],
    ),
    "block size": (
        str(ps.blocks.from_mask([[1, 0], [1, 1]], (64, 128))),
        ps.Problem(128, 256, q_offset=0),
        128,
        "spargeattn",
        {},
        ["block 64 x 128"],
    ),
    "unit=block": ("random(1, unit=block, seed=3)", ps.Problem(512), 256, "spargeattn", {}, ["write unit=256"]),
    "head dim": ("causal", ps.Problem(256), 128, "block_sparse_attention", {"head_dim": 80}, ["zeros to head_dim 128"]),
    "head dim in steps": ("chunk(128)", ps.Problem(256), 128, "flash_attention_4", {"head_dim": 68}, ["head_dim 72"]),
    "heads": (
        str(HEADS),
        ps.Problem(128, heads=4),
        64,
        "flashinfer_bsr",
        {},
        ["the 2 different head patterns one by one"],
    ),
    "KV heads that agree": (
        "heads({range(0, 4): chunk(64), range(4, 8): chunk(128)})",
        ps.Problem(256, heads=8),
        64,
        "flashinfer_variable",
        {"kv_heads": 2},
        ["export the pattern of each of the 2 KV heads"],
    ),
    "KV heads that differ": (
        "heads({range(0, 3): chunk(64), range(3, 8): chunk(128)})",
        ps.Problem(256, heads=8),
        64,
        "flashinfer_variable",
        {"kv_heads": 2},
        ["repeat k and v to 8 heads"],
    ),
    "KV heads nowhere": (
        "chunk(64)",
        ps.Problem(128, heads=4),
        64,
        "deepspeed",
        {"kv_heads": 2},
        ["k and v to 4 heads"],
    ),
    "causality in diagonal blocks": ("causal", ps.Problem(32), 16, "deepspeed", {}, ["take the cover"]),  # A18
    "later keys": (
        "window(3, 3)",
        ps.Problem(64),
        64,
        "vertical_slash",
        {},
        ["which drops 186 pairs", "take the cover"],
    ),
    "empty rows": (
        "causal & rect(range(0, 64), range(0, 64))",
        ps.Problem(65),
        64,
        "vertical_slash",
        {},
        ["add `| window(0, 0)`: each query sees itself, 1 saw nothing"],
    ),
    "the last queries": ("causal & window(7, 0)", ps.Problem(8, 64), 8, "natten", {}, ["take the last 8 rows"]),
    "layers": ("gemma(layers=4, window=16)", ps.Problem(64), 16, "natten", {}, ["layer=0, 1"]),
    "borders that move in": ("window(3, 3)", ps.Problem(64), 64, "natten", {}, ["take the cover"]),
}


@pytest.mark.parametrize("name", CASES)
def test_smallest_change_of_cases_worked_out_by_hand(name):
    text, problem, block, to, more, advice = CASES[name]
    found = doctor(ps.parse(text), problem, block, to, **more)
    assert not found.fits
    assert len(found.findings) == len(advice), str(found)
    for finding, words in zip(found.findings, advice, strict=True):
        assert words in finding.change
        assert finding.why
        assert f"-> {finding.change}" in str(found)
    if name == "layers":
        assert [case.layer for case in found.cases] == [0, 1]
        assert all(file.fidelity.kind == "exact" for file in found.export())
    elif name == "KV heads that agree":
        assert arrays(*found.export())[1]["block_mask_map"].shape[0] == 2
    else:
        wanted(found)


def test_what_fits_needs_nothing():
    found = doctor(ps.causal & ps.window(63, 0), ps.Problem(256, heads=8), 128, "natten", head_dim=64, kv_heads=2)
    assert found.fits
    assert str(found) == ("natten: fits\nhead_dim 64 was not checked: no rule of natten was read")
    assert [file.fidelity.kind for file in found.export()] == ["exact"]
    assert doctor(ps.causal, ps.Problem(256), to="flex_attention", head_dim=16).fits
    assert not doctor(ps.causal, ps.Problem(256), to="flex_attention", head_dim=8).fits


def test_leaks_into_the_future_are_counted():  # A18: 768 pairs are admitted, 528 wanted
    found = doctor(ps.causal, ps.Problem(32), 16, "deepspeed")
    assert "it adds 240 pairs; 240 of them let queries see later keys" in str(found)
    assert "flashinfer_bsr" in found.elsewhere
    assert all(check(ps.causal, ps.Problem(32), 16, name).kind == "exact" for name in found.elsewhere)


def test_of_two_blocks_that_only_cover_the_better_is_taken():
    found = doctor(ps.causal & ps.chunk(64), ps.Problem(256), 48, "deepspeed")
    assert found.findings[0].change == "lower it at block 16 x 16"
    least = min(check(ps.causal & ps.chunk(64), ps.Problem(256), n, "deepspeed").pairs for n in (16, 32, 64, 128))
    assert found.export()[0].fidelity.pairs == least


def test_what_only_many_heads_make_too_large_is_found(monkeypatch):
    """Heads of one pattern are looked at once, but the advice is tried for all of them."""
    monkeypatch.setattr(_tiles, "MAX_TILES", 64)
    found = doctor(ps.chunk(64), ps.Problem(128, heads=8), 16, "deepspeed")
    assert "one entry for each tile of each head, here 512" in found.findings[0].why
    assert [finding.change for finding in found.findings] == ["lower it at block 64 x 64"]
    assert [file.fidelity.kind for file in found.export()] == ["exact"]


def test_pairs_are_counted_over_all_heads():
    assert doctor(ps.causal, ps.Problem(32, heads=5), 16, "deepspeed").fidelity.pairs == 5 * 240


def test_where_nothing_helps_it_says_so():
    found = doctor(ps.bigbird(block=16), ps.Problem(128), 16, "minference")
    assert not found.fits
    assert found.cases == ()
    assert "is no causal window with sinks" in found.reason
    assert "no change was found that makes it fit" in str(found)
    assert "deepspeed" in found.elsewhere
    with pytest.raises(ps.StudioError, match="minference can't be made to hold this pattern: head 0 is no causal"):
        found.export()


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"to": "deepsped"}, "unknown target 'deepsped'; did you mean 'deepspeed'"),
        ({"kv_heads": 3}, "expected kv_heads that divide the 4 query heads, got 3"),
        ({"kv_heads": 0}, "kv_heads must lie between 1 and 4"),
        ({"head_dim": 0}, "head_dim must lie between 1"),
        ({"block": 0}, "block_q must lie between 1"),
    ],
)
def test_bad_questions_are_errors(more, message):
    with pytest.raises(ps.StudioError, match=message):
        doctor(ps.causal, ps.Problem(64, heads=4), **more)


simple = st.sampled_from(
    [
        ps.causal,
        ps.chunk(64),
        ps.causal & ps.chunk(32),
        ps.window(5, 5),
        ps.causal & (ps.window(9, 0) | ps.sink(3)),
        ps.causal & ps.dilated(4, 0, rate=3),
        ps.parse("random(1, unit=block, seed=1)"),
        ps.parse("expander(2, unit=8)"),
        ps.window(70, 70),
        ps.parse("heads({0: causal, 1: chunk(16), 2: causal})"),
        ps.empty,
    ]
)


BY_BLOCK = ps.parse("random(1, unit=block, seed=1)")


@settings(max_examples=20, deadline=None)
@example(BY_BLOCK, (100, 40), (16, 16), "flashinfer_bsr", None, None)  # rows before position 0, draws among the keys
@example(BY_BLOCK, (40, 100), (16, 16), "flashinfer_bsr", None, None)
@example(ps.window(70, 70), (100, 40), (16, 16), "flashinfer_bsr", None, None)
@given(
    simple,
    st.sampled_from([(64, 64), (100, 100), (128, 128), (40, 100), (100, 40)]),
    st.sampled_from([(16, 16), (48, 48), (128, 128), (32, 16)]),
    st.sampled_from([name for name in targets() if name not in ("json", "npz", "safetensors")]),
    st.sampled_from([None, 48, 64]),
    st.sampled_from([None, 1, 3]),
)
def test_advice_that_is_followed_works(pattern, lengths, block, to, head_dim, kv_heads):
    problem = ps.Problem(*lengths, heads=3)
    found = doctor(pattern, problem, block, to, head_dim=head_dim, kv_heads=kv_heads)
    assert found.fits == (not found.findings and not found.reason)
    if found.fits:
        assert found.cases == (found.asked,)
    if not found.cases:
        assert found.reason
    elif not (kv_heads == 1 and to == "flashinfer_variable"):  # whose heads are then the KV heads
        wanted(found)


def test_command(capsys):
    assert main(["doctor", "causal", "--q-len", "32", "--block", "16", "--to", "deepspeed"]) == 1
    assert "let queries see later keys" in capsys.readouterr().out
    assert main(["doctor", "causal", "--q-len", "32", "--to", "npz", "--head-dim", "64", "--kv-heads", "1"]) == 0
    assert capsys.readouterr().out.startswith("npz: fits")
    assert main(["doctor", "causal", "--q-len", "32", "--to", "nope"]) == 2
