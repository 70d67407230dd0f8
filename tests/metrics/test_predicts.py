"""What reports say of their first figure is what the study of predictors measured."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from pattern_studio.metrics.predicts import CORRELATIONS, FRESH, SOURCE, described, first_figure

ROOT = Path(__file__).parents[2]
STUDIED = {
    "damage": "damage",
    "weighted_damage": "combined.weighted_damage",
    "minded_damage": "combined.minded_damage",
}  # as the study calls them


@pytest.mark.parametrize("name", CORRELATIONS)
def test_correlations_are_those_of_the_source(name):
    source = ROOT / SOURCE
    assert source == sorted(source.parent.glob("*-predictors.md"))[-1]
    studies = json.loads(source.with_suffix(".json").read_text("utf-8"))
    models = ("SmolLM2-135M", "Qwen2.5-Coder-0.5B", "all-MiniLM-L6-v2")
    assert all(one["model"].startswith(name) for one, name in zip(studies, models, strict=True))
    assert [one["target"] for one in studies] == [
        "added",
        "added",
        "drift",
    ]  # so only the first two are called the loss
    told = [f"{CORRELATIONS[name][0]:.3f} with the loss of SmolLM2-135M",
            f"{CORRELATIONS[name][1]:.3f} with that of Qwen2.5-Coder-0.5B"]  # fmt: skip
    if name == "minded_damage":  # an encoder has none
        assert CORRELATIONS[name][2] is None
        found = [fresh["rhos"]["combined.minded_damage"]["rho"] for one in studies for fresh in one["fresh"]]
        assert tuple(math.floor(1000 * rho) / 1000 for rho in (min(found), max(found))) == FRESH
        told.append(f"chosen, and {FRESH[0]:.3f} to {FRESH[1]:.3f} on patterns that nothing was chosen on")
        (*studies, _) = studies
    else:
        told.append(f"{CORRELATIONS[name][2]:.3f} with how far the embeddings of all-MiniLM-L6-v2 move")
    assert all(words in described(name) for words in told)
    for study, said in zip(studies, CORRELATIONS[name], strict=len(studies) == 3):
        (rho,) = (row["rho"] for row in study["figures"] if row["figure"] == STUDIED[name])
        assert said == math.floor(1000 * abs(rho)) / 1000


def test_the_best_of_what_was_measured_comes_first():
    assert list(CORRELATIONS) == sorted(CORRELATIONS, key=lambda name: -min(CORRELATIONS[name][:2]))
    assert first_figure({"recall": 1}) is None
    assert first_figure({"damage": None, "recall": 1}) == "damage"
    assert first_figure({"damage": 0.5, "weighted_damage": None}) == "weighted_damage"
    assert first_figure({"damage": 0.5, "weighted_damage": 0.5, "minded_damage": 0.5}) == "minded_damage"
