"""The Gallery page as Streamlit runs it: the gallery's own patterns, citations and figures, and what is asked for."""

from __future__ import annotations

import json
import re
from dataclasses import replace

from pattern_studio_app.events import Chosen
from pattern_studio_app.named import captured, named

import gallery.build
import gallery.named
import pattern_studio as ps
from tests.app.drive import html, labelled
from tests.app.test_pages import started


def titles(at) -> list[str]:
    return re.findall(r'<b title="([^"]*)"', html(at))


def test_the_packaged_gallery_is_the_galleries():
    kept = json.loads(gallery.build.FIGURES.read_text())
    assert json.loads(gallery.build.PACKAGED.read_text()) == gallery.build.packaged(kept), "run `make gallery`"
    assert [one.name for one in named()] == [one.name for one in gallery.named.gallery()]
    for one, own in zip(named(), gallery.named.gallery(), strict=True):
        assert one.work.reading.pattern == own.pattern
        assert one.work.problem() == own.problem
        assert one.kept is not None or one.why_not
    assert captured() == gallery.build.capture_words()


def test_cards_have_citation_density_attention_and_time():
    at = started("gallery")
    assert len(titles(at)) == len(named())
    page = html(at)
    for one in named():
        for number in re.findall(r"arXiv:(\d{4}\.\d{5})", one.source):
            assert f'href="https://arxiv.org/abs/{number}"' in page
    ours = ("ours", "hopper")
    timed = [one for one in named() if any(row["arm"] in ours and row["pass"] == "forward" for row in one.measured)]
    assert "keeps 42.0 % of attention" in page
    assert page.count("attention kept: not measured") == sum(one.kept is None for one in named())
    assert page.count(" ms a pass, measured</span>") == len(timed)


def test_what_no_card_has_timed_is_predicted(monkeypatch):
    some = [replace(one, measured=()) if one.name == "mistral" else one for one in named()]
    monkeypatch.setattr("pattern_studio_app.pages.gallery.named", lambda: tuple(some))
    (mistral,) = (one for one in some if one.name == "mistral")
    assert f"{mistral.predicted['forward_ms']:.3g} ms a pass, predicted</span>" in html(started("gallery"))


def test_a_measured_time_takes_the_predictions_place_and_says_where(monkeypatch):
    row = {"card": "Card <X>", "arm": "ours", "pass": "forward", "ms": 1.234, "tokens": 32768, "heads": 16}
    row |= {"head_dim": 128, "dense_ms": 13.7, "date": "2026-11-30", "docs": None}
    backward, hopper = row | {"pass": "backward", "ms": 0.5}, row | {"arm": "hopper", "ms": 0.876}
    flex = row | {"arm": "flex", "ms": 0.1}
    some = [replace(one, measured=(backward, row, hopper, flex)) if one.name == "mistral" else one for one in named()]
    monkeypatch.setattr("pattern_studio_app.pages.gallery.named", lambda: tuple(some))
    page = html(started("gallery"))
    told = "Card &lt;X&gt;, 2026-11-30; 32,768 tokens, 16 heads, D 128; 1.23 ms by the portable kernels, "
    told += "0.876 ms by the Hopper kernels; dense 13.7 ms"
    assert page.count(f'<span title="{told}">0.876 ms a pass, measured</span>') == 1


def test_families_and_words_are_kept_over_pages():
    at = started("gallery")
    session = at.session_state["studio session"]
    session.happened(Chosen("family", "Images and video"))
    at.run()
    assert set(titles(at)) == {one.title for one in named() if one.family == "Images and video"}
    labelled(at.text_input, "Search the gallery").set_value("SWIN").run()
    assert titles(at) == ["Swin, shifted windows"]
    at.session_state["page"] = "export"
    at.run()
    at.session_state["page"] = "gallery"
    at.run()
    assert titles(at) == ["Swin, shifted windows"]
    assert labelled(at.text_input, "Search the gallery").value == "SWIN"
    labelled(at.text_input, "Search the gallery").set_value("no such pattern").run()
    assert "No pattern has these words" in html(at)


def test_one_click_opens_the_pattern_with_its_problem():
    at = started("gallery")
    for name in ("packed_documents", "gemma", "swin"):
        (one,) = [one for one in named() if one.name == name]
        at.button(key=f"open {name}").click().run()
        shown = at.session_state["studio session"].state.shown
        assert (shown, shown.reading.pattern) == (one.work, ps.parse(one.work.text))
        assert not at.exception
