"""Every story runs, small, and ends as it tells."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from gallery.stories import (
    config_to_kernel,
    custom_pattern,
    fit_edit_train,
    language_model_block,
    monitoring,
    shrink_window,
)

FOLDER = Path(shrink_window.__file__).parent


def test_every_story_is_run_here():
    stories = {path.stem for path in FOLDER.glob("*.py")} - {"__init__"}
    assert stories == {
        "config_to_kernel",
        "custom_pattern",
        "fit_edit_train",
        "language_model_block",
        "monitoring",
        "shrink_window",
    }


def test_a_window_for_each_head_beats_one_for_all(capsys):
    end = shrink_window.main(layer=20, windows=(1024, 256, 32))
    assert end["one window density"] <= end["by head density"] < 0.3
    assert end["by head recall"] > end["one window recall"]
    assert end["by head worst"] >= shrink_window.KEEP > end["one window worst"]
    told = capsys.readouterr().out
    assert "0.28*" in told, "head 2 breaks at 32"
    assert "heads({0: causal & (window(31, 0) | sink(4))" in told


def test_smallest_windows_by_hand():
    table = {8: [1.0, 1.0, 0.9], 4: [0.8, 0.6, 0.7], 2: [0.75, 0.5, 0.6]}
    assert shrink_window.smallest_windows(table) == [2, 8, 4]


def test_a_config_becomes_a_kernel_that_agrees_with_transformers(capsys):
    assert max(config_to_kernel.main(tokens=160).values()) < 1e-12
    told = capsys.readouterr().out
    assert "layers 0, 2: sliding_window=64 is causal & window(63, 0)" in told
    assert "def mask_mod(b, h, q_idx, kv_idx)" in told


@pytest.mark.parametrize(("tokens", "block"), [(256, 32), (384, 64)])
def test_the_guides_custom_pattern_is_one_line(tokens, block, capsys):
    end = custom_pattern.main(tokens, block)
    assert end["equal"] == 1.0
    assert end["difference"] < 1e-12
    mask = custom_pattern.by_loops(tokens // block)
    assert end["block density"] == mask.mean()
    assert f"comb({3 * block}, (range(0, {block}),))" in capsys.readouterr().out


def test_an_edit_pays_in_recall_and_in_training():
    before = torch.random.get_rng_state()
    end = fit_edit_train.main(steps=50)
    assert torch.equal(torch.random.get_rng_state(), before), "the global generator is left as it was"
    assert end["edited"] > end["fitted"] > 0.5
    assert end["edited p1"] > end["fitted p1"]
    assert end["window"] < 0.45 < 0.9 < end["window and sink"]


def test_the_guides_language_model_keeps_a_tenth_with_one_plan(capsys):
    small = [
        "--tokens",
        "2000",
        "--layers",
        "2",
        "--batch",
        "1",
        "--width",
        "32",
        "--heads",
        "2",
        "--density",
        "0.2",
        "--device",
        "cpu",
    ]
    end = language_model_block.main(small)
    assert end["finite"] == 1
    assert 0.15 < end["block density"] <= 0.2
    assert "one plan for all layers" in capsys.readouterr().out
    assert language_model_block.SparseTransformerBlock().attention.sparse_config.density == 0.1


def test_what_a_module_says_of_itself_was_measured(capsys):
    end = monitoring.main(["--tokens", "512", "--width", "32"])
    assert {name for name, value in end["before"].items() if value is not None} == {
        "forwards",
        "plan_hits",
        "plan_misses",
    }
    assert end["stats"]["forwards"] == len(end["log"]) == 3
    assert end["stats"]["avg_forward_time_ms"] > 0
    assert 0 < end["stats"]["quality_score"] < 1
    assert end["freed"] > 0
    assert "which is no time" in capsys.readouterr().out
