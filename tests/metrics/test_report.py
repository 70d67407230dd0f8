"""The report as Markdown, as HTML and as files that the command writes."""

from __future__ import annotations

import json
import re
import sys
from dataclasses import replace

import pytest
import torch

import pattern_studio as ps
from pattern_studio.capture import LayerMinds, Minds
from pattern_studio.cli import main
from pattern_studio.metrics import analyze
from pattern_studio.metrics.html import TITLES
from tests.metrics.captures import capture_of, weighted


def test_markdown_shows_every_layer_head_and_figure():
    capture = capture_of(weighted([[3, 1], [1, 1]]), first=7)
    text = analyze(ps.sink(1), capture, block=1).to_markdown()
    assert text.startswith(
        "# `sink(1)`\n\nAgainst the dense full attention of made by hand, CC0, 2 tokens of: no text, CC0."
    )
    assert "Block 1 x 1. Damage: lost mass and turned outputs of the heads, every layer alike; 0 is best." in text
    assert "| all | all | 0 | 0.625 | 0.5 | 0.5 | 0 | 0.625 | 0 |" in text
    assert "| 7 | 1 | 0 | 0.5 | 0.5 | 0.5 | 0 | 0.5 | 0 |" in text
    assert "| density.block | 0.5 |" in text
    assert "| gqa_union | - |" in text


def test_markdown_survives_any_token_and_missing_figures():
    capture = capture_of(weighted([1, 1]))
    object.__setattr__(capture, "tokens", ("a|b\n", "\u2028"))
    text = analyze(ps.sink(1), capture, metrics=["recall"]).to_markdown()
    assert "| all | all | - | 0.5 | 0.5 | 0.5 | - | - | - |" in text
    assert r"| worst_rows.1.token | a\|b\n |" in text
    assert r"| worst_rows.2.token | \u2028 |" in text


def test_rows_without_a_key_are_told_of():
    """A layout for 1 token on a capture of 3: two rows of each of three heads, in one layer."""
    report = analyze(ps.blocks((1, 1), ((0,),)), capture_of(weighted([[3, 1, 2], [1, 1, 1], [1, 2, 3]])), block=1)
    told = "6 of 9 query rows (over heads and layers) keep no key: a pattern that lists positions or blocks may have"
    assert report.warning.startswith(told)
    assert told in report.to_markdown()
    assert told in report.to_html()
    assert report.as_dict()["warning"] == report.warning
    assert analyze(ps.causal, capture_of(weighted([[3, 1, 2]])), block=1).warning is None


def test_html_is_whole_and_escapes_what_a_capture_says():
    capture = capture_of(weighted([[3, 1], [1, 1]]), first=7)
    object.__setattr__(capture, "tokens", ("<script>alert(1)</script>", "a|b"))
    object.__setattr__(capture, "text", "</title><img src=x onerror=y>")
    page = analyze(ps.sink(1), capture, block=1).to_html()
    assert "<script>alert" not in page
    assert "<img src=x" not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    assert "<td>a|b</td>" in page
    assert not re.search(r"<(script|link|img)[^>]*(src|href)=", page)  # nothing is fetched
    assert "Weighted damage" not in page
    assert "Minded damage" not in page
    shown = [title for key, title in TITLES.items() if key not in ("weighted_damage", "minded_damage")]
    for title in (*shown, "Attention mass by distance", "Mass recall along the text"):
        assert title in page
    # The grid of the two heads' recall, as Plotly holds it.
    assert '"z":[[0.75,0.5]]' in page
    assert "<td>density.block</td><td>0.5</td>" in page


def test_with_sensitivity_the_weighted_figure_comes_first():
    capture = capture_of(weighted([3, 1], values=[8, 4]), weighted([1, 1], values=[2, 0]), first=7)
    report = analyze(ps.window(0, 0), capture, block=1, sensitivity=[1, 3])
    assert [key for key in report.as_dict() if "damage" in key] == ["weighted_damage", "damage"]
    text = report.to_markdown()
    assert "Weighted damage: lost mass of rows and turned outputs of heads, layers weighed by how much" in text
    assert "| layer | head | weighted damage | damage | recall |" in text
    shown = f"{report.weighted_damage:.4g} | {report.damage:.4g}"
    assert f"| all | all | {shown} | 0.5 | " in text
    assert text.count("weighted_damage") == 0  # it has its column: no second row
    page = report.to_html()
    assert page.index(TITLES["weighted_damage"]) < page.index(TITLES["damage"])
    assert f"<td>{shown.replace(' | ', '</td><td>')}</td>" in page


def test_with_what_the_model_minds_that_figure_comes_first():
    capture = capture_of(weighted([3, 1], values=[8, 4]), first=7)
    minds = LayerMinds(torch.ones(1, 2), torch.ones(1, 1), torch.ones(2))
    report = analyze(ps.window(0, 0), replace(capture, minds=Minds({7: minds}), sensitivity=[1]), block=1)
    wanted = ["minded_damage", "weighted_damage", "damage", "minded"]
    assert [key for key in report.as_dict() if "damage" in key or key == "minded"] == wanted
    text = report.to_markdown()
    assert "Minded damage: lost mass of the rows that the loss minds" in text
    assert "| layer | head | minded damage | weighted damage | damage | recall |" in text
    shown = f"{report.minded_damage:.4g} | {report.weighted_damage:.4g} | {report.damage:.4g}"
    assert f"| all | all | {shown} | 0.5 | " in text
    assert text.count("minded_damage") == 0  # it has its column, and what it is made of a row each
    assert "| minded.stirred | 9 |" in text
    page = report.to_html()
    assert page.index(TITLES["minded_damage"]) < page.index(TITLES["weighted_damage"])
    assert f"<td>{shown.replace(' | ', '</td><td>')}</td>" in page


def test_html_of_figures_that_were_not_asked_for_is_a_page_of_tables():
    page = analyze(ps.sink(1), capture_of(weighted([1, 1])), metrics=["density"]).to_html()
    assert "<td>density.token</td><td>0.5</td>" in page
    assert "Plotly" not in page


def test_html_without_plotly_says_what_to_do(monkeypatch):
    monkeypatch.setitem(sys.modules, "plotly", None)
    report = analyze(ps.sink(1), capture_of(weighted([1, 1])), metrics=["recall"])
    with pytest.raises(ps.StudioError, match=r"expected plotly for an HTML report.*pattern-studio\[app\]"):
        report.to_html()


@pytest.mark.parametrize("suffix", [".json", ".md", ".html"])
def test_the_command_writes_a_file(suffix, tmp_path, capsys):
    file = tmp_path / f"report{suffix}"
    assert main(["analyze", "causal & window(63, 0)", "--layers", "20", "--out", str(file)]) == 0
    assert capsys.readouterr().out == f"wrote {file}\n"
    told = file.read_text("utf-8")
    assert "SmolLM2" in told
    if suffix == ".json":
        assert [layer["layer"] for layer in json.loads(told)["layers"]] == [20]


def test_the_command_names_the_kinds_of_file(capsys):
    assert main(["analyze", "causal", "--out", "report.pdf"]) == 2
    assert capsys.readouterr().err == (
        "pattern-studio: --out takes a file ending in .json, .md, .html, got 'report.pdf'\n"
    )


def test_the_command_composes_layers(capsys):
    assert main(["analyze", "causal & window(511, 0)", "--layers", "7", "--depth", "3"]) == 0
    told = capsys.readouterr().out
    assert "Receptive field through layers, causal, block 1. Hops to reach all: 3." in told
    assert "| 3 | 1 | 512.5 | 1 |" in told
