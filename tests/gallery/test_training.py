"""The training script, tiny: all three models learn, from the same start, and what is written says what was run."""

from __future__ import annotations

import doctest
import itertools
import json
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
import torch

import pattern_studio as ps
from gallery.training import adaptive, curves, dynamic_density, hierarchical, language_model

RESULTS = Path(language_model.__file__).parent / "results"
TINY = {"context": 512, "width": 32, "heads": 2, "layers": 1, "batch": 1, "steps": 16, "block": 8, "text": 100_000}


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    out = tmp_path_factory.mktemp("trained")
    before = torch.random.get_rng_state()
    options = [word for name, value in TINY.items() for word in (f"--{name}", str(value))]
    made = language_model.main(["--out", str(out), "--device", "cpu", *options])
    assert torch.equal(torch.random.get_rng_state(), before), "the global generator is left as it was"
    return made, out


def test_all_three_learn(found):
    made, _ = found
    assert list(made["arms"]) == ["dense", "static", "adaptive"]
    for arm, row in made["arms"].items():
        first, last = row["losses"][0], sum(row["losses"][-4:]) / 4
        assert first > 5, arm  # of 256 bytes: about ln 256 before anything is learned
        assert last < first - 1, arm
        assert row["held_out_loss"] < first - 1, arm
        assert row["tokens_per_second"] > 0
        assert 0 < row["attention_ms"]["forward"] < row["attention_ms"]["forward_backward"] * 2
    gates = [loss for _, loss in made["arms"]["adaptive"]["gate_losses"]]
    assert len(gates) == 2
    assert gates[1] != gates[0] > 0


def test_what_cannot_run_says_so_before_any_is_trained(monkeypatch):
    def refused(size):
        raise ps.StudioError("no such attention here")

    told = []
    monkeypatch.setitem(language_model.ARMS, "adaptive", refused)
    with pytest.raises(ps.StudioError, match="no such attention here"):
        language_model.run(language_model.Size(**TINY), torch.device("cpu"), told.append)
    assert not told


def test_each_is_written_when_it_is_done(tmp_path, monkeypatch):
    train = language_model.train

    def broken(arm, size, *more):
        if arm == "static" and size.steps > 1:
            raise KeyboardInterrupt
        return train(arm, size, *more)

    monkeypatch.setattr(language_model, "train", broken)
    options = [word for name, value in (TINY | {"steps": 2}).items() for word in (f"--{name}", str(value))]
    with pytest.raises(KeyboardInterrupt):
        language_model.main(["--out", str(tmp_path), "--device", "cpu", *options])
    (file,) = tmp_path.glob("*.json")
    assert list(json.loads(file.read_text())["arms"]) == ["dense"]


def test_a_loss_that_is_no_number_ends_the_run():
    size = language_model.Size(**(TINY | {"lr": 1e30}))
    with pytest.raises(ps.StudioError, match=r"a loss of dense is (nan|inf), nothing to go on from"):
        language_model.train("dense", size, language_model.stdlib(size.text), torch.device("cpu"))


def test_sparse_models_keep_a_tenth(found):
    made, _ = found
    assert made["arms"]["dense"]["block_density_of_triangle"] is None
    for arm in ("static", "adaptive"):
        assert 0.05 < made["arms"][arm]["block_density_of_triangle"] <= 0.10


def test_the_three_start_alike():
    size = language_model.Size(**TINY)
    states = [language_model.Model(size, arm).state_dict() for arm in language_model.ARMS]
    for name, value in states[0].items():
        assert all(torch.equal(value, other[name]) for other in states[1:]), name
    assert all(".gate." in name for name in set(states[2]) - set(states[0]))


def test_the_dense_model_is_the_sparse_one_with_every_pair():
    size = language_model.Size(**TINY)
    dense, sparse = language_model.Model(size, "dense"), language_model.Model(size, "static")
    for block in sparse.blocks:
        block.attention.set_pattern("causal")
    text = torch.randint(256, (2, 100), generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(dense(text), sparse(text), atol=1e-5, rtol=1e-5)


def test_files_say_what_was_run(found):
    made, out = found
    (file,) = out.glob("*-language-model-cpu.json")
    assert json.loads(file.read_text()) == json.loads(json.dumps(made))
    assert made["size"]["context"] == 512
    assert made["machine"]["card"] is None
    picture = ElementTree.fromstring(file.with_suffix(".svg").read_text())
    about = picture.get("aria-label")
    assert all(f"{arm}: {row['held_out_loss']:.3f} held out" in about for arm, row in made["arms"].items())
    assert len(picture.findall("{http://www.w3.org/2000/svg}path")) == 3


def test_kept_results_have_their_machine_and_picture():
    kept = sorted(RESULTS.glob("*.json"))
    assert kept
    for file in kept:
        made = json.loads(file.read_text())
        assert made["machine"]["date"] in file.name
        assert file.with_suffix(".svg").read_text() == curves.curves(made)
        assert all(row["losses"][-1] < row["losses"][0] for row in made["arms"].values())


def test_the_gate_learns_beside_the_model(capsys):
    small = [
        "--steps",
        "25",
        "--tokens",
        "160",
        "--width",
        "32",
        "--heads",
        "2",
        "--block",
        "8",
        "--batch",
        "2",
        "--threshold",
        "0.9",
    ]
    end = adaptive.main(small)
    assert end["last loss"] < 0.9 * end["first loss"]
    assert end["last gate loss"] < end["first gate loss"]
    assert 0.5 < end["recall"] <= 1
    assert 0 < end["block density"] < 1
    assert "Asked for a predicted mass of 0.9" in capsys.readouterr().out


def test_density_tightens_while_the_quality_holds():
    told = dynamic_density.main(
        ["--epochs", "5", "--steps", "3", "--tokens", "256", "--width", "32", "--block", "8", "--quality", "0.5"]
    )
    assert [round(one["asked"], 4) for one in told[:2]] == [0.5, 0.4]
    for before, after in itertools.pairwise(told):
        assert (after["asked"] < before["asked"]) == (before["quality"] >= 0.5 and before["asked"] > 0.15)
        assert after["block_density"] <= after["asked"]
    assert told[-1]["loss"] < told[0]["loss"]


def test_the_hierarchy_is_sparser_the_further_it_reaches():
    mask = ps.dense_mask(ps.parse(hierarchical.pattern(4, 2)), ps.Problem(256))[0]
    triangle = np.tril(np.ones((256, 256), bool))
    device = np.arange(256) // 64
    levels = {
        "device": device[:, None] == device,
        "node": (device[:, None] // 2 == device // 2) & (device[:, None] != device),
        "beyond": device[:, None] // 2 != device // 2,
    }
    kept = {name: mask[level & triangle].mean() for name, level in levels.items()}
    assert kept["device"] == pytest.approx(0.5, abs=0.05)
    assert kept["node"] == pytest.approx(0.2, abs=0.05)
    assert kept["beyond"] == pytest.approx(0.05, abs=0.02)
    assert not mask[~triangle].any()


def test_examples_run():
    for module in (curves, hierarchical):
        assert doctest.testmod(module).failed == 0
