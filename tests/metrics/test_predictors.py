"""The study of predictors: statistics by hand, its patterns, a row on a small model, and its table from its files."""

from __future__ import annotations

import json
import math
from collections import Counter
from dataclasses import replace
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import spearmanr

import pattern_studio as ps
from benchmarks.predictors import __main__ as command
from benchmarks.predictors.__main__ import join, row, sensitivity
from benchmarks.predictors.combined import (
    damage,
    layer_weighted_error,
    lost_turned_error,
    minded_damage,
    weighted_damage,
)
from benchmarks.predictors.correlate import correlation, misled, spearman
from benchmarks.predictors.fresh import fresh
from benchmarks.predictors.patterns import Candidate, Recipe, blocks, recipes
from benchmarks.predictors.studies import Study
from benchmarks.predictors.table import fresh_of, fresh_paths, halves, newest, safest, study, to_markdown, unseen
from benchmarks.predictors.texts import join_paragraphs
from pattern_studio.capture import Capture, LayerCapture
from pattern_studio.capture.record import record
from pattern_studio.learned import measured_minds
from pattern_studio.metrics import analyze
from pattern_studio.metrics.loss import next_token_loss, position_losses
from pattern_studio.metrics.sensitivity import layer_sensitivity
from tests.capture.families import build

ROOT = Path(__file__).parents[2]
few = st.lists(st.tuples(st.integers(-4, 4), st.integers(-4, 4)), min_size=2, max_size=20)


@given(few)
def test_spearman_is_scipys(pairs):
    x, y = zip(*pairs, strict=True)
    constant = len(set(x)) == 1 or len(set(y)) == 1
    assert spearman(x, y) == (0 if constant else pytest.approx(spearmanr(x, y).statistic, abs=1e-9))


def test_correlation_and_what_density_explains():
    density = np.arange(40.0)
    loss = -density + np.tile([3.0, -3.0], 20)
    found = correlation(loss * 2, loss, density)
    assert (found.rho, found.beyond_density) == (1, pytest.approx(1))
    alone = correlation(density, loss)
    assert alone.beyond_density is None
    assert -1 <= alone.low < alone.rho < alone.high < -0.9
    # A monotone function of density knows nothing beyond it: of nothing there is no correlation.
    assert correlation(density**3, loss, density).beyond_density is None
    assert correlation(loss, loss, density, seed=1).low == 1


@given(few)
def test_worst_advice_by_brute_force(pairs):
    figure, loss = (np.array(part, float) for part in zip(*pairs, strict=True))
    sign = 1 if spearman(figure, loss) >= 0 else -1
    costs = [
        loss[a] - loss[b]
        for a in range(len(loss))
        for b in range(len(loss))
        if sign * figure[a] < sign * figure[b] and loss[a] > loss[b]
    ]
    found = misled(figure, loss)
    assert (found is None) == (not costs)
    if found is not None:
        assert found.cost == max(costs) == loss[found.chosen] - loss[found.other]
        assert sign * figure[found.chosen] < sign * figure[found.other]


def test_layers_weigh_as_much_as_the_model_minds_them():
    # One layer: twice the error of the reference costs four times as much; the other never cost anything.
    known = {"layer_errors": [0.25, 0.5], "added": [0.1, -0.2]}
    assert layer_weighted_error({"layer_errors": [0.5, 0.9]}, known) == pytest.approx(0.4)


def test_paragraphs():
    assert join_paragraphs("Two\nlines. \n\n Three \n {words}.") == "Two lines.\n\nThree words."


@pytest.mark.parametrize("causal", [True, False])
def test_patterns_are_many_distinct_and_the_same_every_time(causal):
    tokens, heads = 64, 3
    generator = torch.Generator().manual_seed(0)
    layers = {
        n: LayerCapture(*(torch.randn(h, tokens, 4, generator=generator) for h in (heads, 1, 1))) for n in range(3)
    }
    capture = Capture(layers, "m", "t", ("x",) * tokens, 0.5, causal)
    with mock.patch("benchmarks.predictors.patterns.DENSITIES", (0.5, 0.25)):
        planned, again = list(recipes(capture)), [one.made() for one in list(recipes(capture))[:3]]
    found = []
    for recipe in planned:
        try:
            found.append(recipe.made())
        except ps.StudioError as error:
            assert "tiles" in str(error)  # noqa: PT017 - the budget pays for none
    assert len(found) > 50
    assert len(Counter(one.family for one in found)) >= 25
    assert {one.scope for one in found} == {"shared", "heads", "layers"}
    assert {one.block for one in found} == set(blocks(tokens).values())
    assert [one.pattern.hash for one in again] == [one.made().pattern.hash for one in planned[:3]]
    for one in found:
        mask = ps.dense_mask(one.pattern, ps.Problem(tokens, heads=heads), block=one.block, layer=1)
        assert mask.any(-1).all(), one.family
        assert not causal or not np.triu(mask, 1).any(), one.family


def test_fresh_patterns_are_distinct_and_none_of_the_study():
    generator = torch.Generator().manual_seed(0)
    layers = {n: LayerCapture(*(torch.randn(h, 256, 4, generator=generator) for h in (9, 1, 1))) for n in range(3)}
    capture = Capture(layers, "m", "t", ("x",) * 256, 0.5, True)

    def hashes(planned):
        found = []
        for recipe in planned:
            try:
                found.append(recipe.made().pattern.hash)
            except ps.StudioError as error:
                assert "tiles" in str(error)  # noqa: PT017 - the budget pays for none
        return found

    new = list(fresh(capture))
    assert len({one.key for one in new}) == len(new)
    found = hashes(new)
    assert len(set(found)) >= 55
    assert not set(found) & set(hashes(one for one in recipes(capture) if not one.family.startswith("fitted")))


def test_every_recipe_has_a_key_of_its_own():
    part = LayerCapture(*(torch.ones(1, 256, 4) for _ in range(3)))
    planned = list(recipes(Capture({0: part}, "m", "t", ("x",) * 256, 0.5, True)))
    assert len({one.key for one in planned}) == len(planned) > 110


class Small(Study):
    """A random model of three layers."""

    def __init__(self) -> None:
        self.model = build("gpt2")
        self.ids = torch.randint(3, 256, (64,), generator=torch.Generator().manual_seed(0)).tolist()
        self.capture = self.fitted = record(
            self.model, {"input_ids": torch.tensor([self.ids])}, layers=range(3), model_name="m", text="t",
            tokens=tuple(map(str, self.ids)), dtype=torch.float32,
        )  # fmt: skip
        self.capture = replace(self.fitted, minds=measured_minds(self.model, self.ids, self.fitted))
        self.said = "loss"

    def loss(self, pattern, block):
        report = next_token_loss(self.model, self.ids, pattern, block=block)
        return {"added": report.added, "low": report.added_low, "high": report.added_high}

    def calibration(self, pattern, block, layer):
        dense, alone = (
            position_losses(self.model, self.ids, pattern, block=block, layers=chosen)
            for chosen in ([], None if layer is None else [layer])
        )
        return {"added": float((alone - dense).mean()), "moved": float((alone - dense).square().mean())}


def test_a_row_and_the_sensitivity_of_layers():
    small = Small()
    pattern = ps.causal & (ps.window(3, 0) | ps.sink(1))
    found = row(small, Candidate("window", "shared", 0.1, (4, 4), pattern))
    assert found["loss"]["added"] == pytest.approx(next_token_loss(small.model, small.ids, pattern).added)
    figures = found["figures"]
    assert len(figures) > 60
    assert all(math.isfinite(value) for value in figures.values())
    assert figures["heads.recall_min"] < figures["heads.recall_geometric"] < figures["recall.mean"] < 1
    assert figures["layers.error_max"] == max(found["layer_errors"])
    assert 0 < figures["rows.below_tenth"] <= figures["rows.below_half"] < 1
    known = sensitivity(small)
    assert found["loss_on_metrics_text"]["added"] == pytest.approx(found["loss"]["added"])  # here they are one text
    assert all(moved > 0 for moved in known["moved"])
    heads = json.loads(found["heads"]["recall"])
    assert np.mean(heads) == pytest.approx(figures["recall.mean"], abs=1e-4)
    assert len(known["added"]) == len(known["layer_errors"]) == len(found["layer_errors"]) == 3
    # The reference itself is predicted as the sum of what its layers cost.
    own = {"layer_errors": known["layer_errors"]}
    assert layer_weighted_error(own, known) == pytest.approx(sum(max(each, 0) for each in known["added"]))
    json.dumps([found, known], allow_nan=False)
    # What is made of the digits that a row keeps is the metric; a pattern that keeps more is better off by both.
    assert damage(found) == pytest.approx(figures["damage"], abs=1e-3)
    more = row(small, Candidate("wide", "shared", 0.5, (4, 4), ps.causal & (ps.window(15, 0) | ps.sink(1))))
    assert weighted_damage(more, known) < weighted_damage(found, known)
    assert more["figures"]["damage"] < figures["damage"]
    # The one with the error of heads is that times root errors over root losses.
    for one in (found, more):
        ratio = (one["figures"]["heads.error_mean_square"] / one["figures"]["rows.mean_square_lost"]) ** 0.5
        assert lost_turned_error(one, known) == pytest.approx(weighted_damage(one, known) * ratio)
    # So is the weighted one, with what the package itself says that the model minds.
    weights = layer_sensitivity(small.model, small.ids, small.capture)
    weighed = analyze(pattern, small.capture, metrics=["damage", "minded_damage"], sensitivity=weights)
    assert weighed.weighted_damage == pytest.approx(weighted_damage(found, known), rel=0.02)
    assert weighed.minded_damage == pytest.approx(minded_damage(found, known), rel=0.02)
    assert minded_damage(more, known) < minded_damage(found, known)


def test_rows_that_are_older_than_a_figure_get_it(tmp_path, monkeypatch, capsys):
    small, out = Small(), tmp_path / "made.json"
    made = [
        Recipe(name, "shared", None, (4, 4), lambda pattern=pattern: pattern)
        for name, pattern in (("narrow", ps.causal & ps.window(1, 0)), ("wide", ps.causal & ps.window(9, 0)))
    ]
    monkeypatch.setattr(command, "STUDIES", {"smollm2": (lambda *given: small, 64)})
    monkeypatch.setattr(command, "recipes", lambda fit: made)
    small.capture = replace(small.capture, model="m", text="t")
    monkeypatch.setattr("sys.argv", ["predictors", "--out", str(out)])
    command.main()
    whole = json.loads(out.read_text("utf-8"))
    old = json.loads(out.read_text("utf-8"))
    for one in old["rows"]:
        del one["figures"]["minded.lost"], one["figures"]["minded.stirred"]
    old["rows"][1] |= {"hash": "another fit", "loss": {"added": 100.0}}
    out.write_text(json.dumps(old), encoding="utf-8")
    capsys.readouterr()
    command.main()
    again = json.loads(out.read_text("utf-8"))
    assert "2 of them to measure" in capsys.readouterr().out
    assert again["anew"]["rows"] == 1
    for one, before in zip(again["rows"], whole["rows"], strict=True):
        assert one["figures"] == pytest.approx(before["figures"])
        assert (one["family"], one["hash"], one["loss"]) == (before["family"], before["hash"], before["loss"])
    command.main()  # nothing is left to do
    assert "0 of them to measure" in capsys.readouterr().out


def test_parts_of_different_studies_do_not_join():
    one = {"model": "m", "tokens": 8, "tokens_sha256": "0", "sensitivity": {}, "rows": []}
    with pytest.raises(ps.StudioError, match="expected parts of one study"):
        join([one, one | {"tokens": 16}])
    with pytest.raises(ps.StudioError, match="with 0 such"):
        join([one | {"sensitivity": None}])


def test_what_was_chosen_on_is_left_out_of_the_unseen():
    rows = [
        {"figures": {"density.token": float(at)}, "heads": {"recall": "[[1.0]]", "cosine": "[[1.0]]"},
         "loss": {"added": -at if at >= 35 else at}}
        for at in range(40)
    ]  # fmt: skip
    values = {"model": "Qwen2.5-Coder", "target": "added", "sensitivity": None, "rows": rows}
    assert unseen(values) == {"patterns": 5, "rhos": {"damage": 0, "density.token": -1}}
    assert unseen(values | {"model": "SmolLM2"}) is None


def test_the_safest_figure_is_the_one_whose_worst_correlation_is_best():
    tables = [
        {"figures": [{"figure": name, "rho": rho} for name, rho in one.items()]}
        for one in ({"a": 0.9, "b": -0.8, "c": 0.99, "d": 1.0}, {"a": 0.5, "b": -0.7, "c": -0.99, "e": 1.0})
    ]
    assert safest(tables) == [("b", 0.7), ("a", 0.5)]


def test_the_table_is_made_from_the_files():
    read = [json.loads(path.read_text("utf-8")) for path in newest(ROOT / "benchmarks" / "results")]
    assert {one["target"] for one in read} == {"added", "drift"}  # a decoder's and an encoder's
    (*_, path) = sorted((ROOT / "gallery" / "claims").glob("*-predictors.json"))
    kept = json.loads(path.read_text("utf-8"))
    fresh = [
        [fresh_of(json.loads(path.read_text("utf-8"))) for path in fresh_paths(each)]
        for each in newest(ROOT / "benchmarks" / "results")
    ]
    assert [len(each) > 0 for each in fresh] == [one["target"] == "added" for one in read]
    assert json.loads(json.dumps(fresh)) == [one["fresh"] for one in kept]
    for one, again in zip(kept, map(study, read), strict=True):
        assert one["patterns"] == again["patterns"] >= 30
        assert one["loss_too"] == again["loss_too"]
        assert (one["loss_too"] is None) == (one["target"] == "added")
        for mine, theirs in zip(one["figures"], again["figures"], strict=True):
            assert mine["figure"] == theirs["figure"]
            assert mine["rho"] == pytest.approx(theirs["rho"], abs=1e-6)
            assert mine["low"] == pytest.approx(theirs["low"], abs=1e-6)
    assert [one["other_half"] for one in kept] == halves(read)
    assert to_markdown(path.stem.removesuffix("-predictors"), kept) == path.with_suffix(".md").read_text("utf-8")
