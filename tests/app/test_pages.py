"""The pages as Streamlit runs them, without a browser."""

from __future__ import annotations

import pytest
from pattern_studio_app import compute, numbers
from pattern_studio_app.events import Boxed, ToolChosen
from pattern_studio_app.named import named
from pattern_studio_app.state import State
from pattern_studio_app.work import Work
from streamlit.testing.v1 import AppTest

import pattern_studio as ps
from pattern_studio.metrics import density, layout_stats
from pattern_studio.plot import Viewport
from tests.app.drive import figures, html, labelled, settled


def script() -> None:
    from pattern_studio_app.router import main

    main()


def one_page() -> None:
    """The page named in the session: switching it drops the other's widgets, as navigation does."""
    import streamlit as st
    from pattern_studio_app.pages import compare, design, export, gallery, quality

    pages = {"compare": compare, "design": design, "quality": quality, "export": export, "gallery": gallery}
    pages[st.session_state["page"]].render()


def started(page: str | None = None, **params: str) -> AppTest:
    at = AppTest.from_function(script if page is None else one_page, default_timeout=120)
    if page:
        at.session_state["page"] = page
    for name, value in params.items():
        at.query_params[name] = value
    return settled(at)


def text_box(at: AppTest):
    return labelled(at.text_input, "Pattern")


def typed(at: AppTest, text: str) -> AppTest:
    text_box(at).set_value(text).run()
    assert not at.exception
    return at


def expected(text: str, problem: ps.Problem, block=(64, 64)) -> dict[str, str]:
    stats = layout_stats(ps.parse(text), problem, block)
    return {
        "Token, causal": numbers.percent(stats.density.token_of_causal),
        "Token, all": numbers.percent(stats.density.token),
        "Block": numbers.percent(stats.density.block),
        "Full": numbers.count(stats.tiles.full),
        "Partial": numbers.count(stats.tiles.partial),
        "Efficiency": numbers.percent(stats.block_efficiency),
        "Empty rows": numbers.count(stats.empty_rows),
    }


@pytest.mark.parametrize(
    "text", ["causal & (window(63, 0) | sink(4))", "window(3, 3) | globals(cols=0:9)", "empty", "random(7, seed=3)"]
)
def test_a_typed_pattern_shows_the_figures_of_layout_stats(text):
    at = typed(started(), text)
    assert expected(text, ps.Problem(1024, heads=9)).items() <= figures(at).items()


def test_what_is_typed_is_lowered_once(monkeypatch: pytest.MonkeyPatch):
    asked = []
    for module in (compute, density):
        monkeypatch.setattr(module, "lower", lambda *args, **more: asked.append(args) or ps.lower(*args, **more))
    layout, stats = compute.design(State(shown=Work("causal & random(5, seed=11)", q_len=200)))
    assert len(asked) == 1  # the figures are of the layout that is drawn
    assert stats.pairs == layout.pairs


def test_the_problem_counts():
    at = typed(started(), "causal & window(63, 0)")
    labelled(at.number_input, "Query rows, tokens").set_value(500).run()
    labelled(at.number_input, "Keys, tokens").set_value(2000).run()
    labelled(at.number_input, "Query heads").set_value(3).run()
    labelled(at.selectbox, "Block, query rows").set_value(128).run()
    labelled(at.selectbox, "Block, keys").set_value(1).run()
    assert not at.exception
    problem = ps.Problem(500, 2000, heads=3)
    assert expected("causal & window(63, 0)", problem, (128, 1)).items() <= figures(at).items()


def test_cost_is_four_channels_times_pairs_in_active_tiles():
    at = typed(started(), "causal")
    pairs = 9 * 64 * 64 * (16 * 17 // 2)
    assert figures(at)["Forward pass"] == numbers.scaled(4 * 64 * pairs, "FLOP")


def test_an_error_is_shown_at_its_place_and_the_last_picture_stays():
    at = started()
    before = figures(at)
    typed(at, "causal & (windw(63, 0) | sink(4))")
    assert f'{" " * 10}<span class="wrong">^ <span class="words">unknown word' in html(at)
    assert "Block" in before
    assert {k: v for k, v in figures(at).items() if k in before} == before
    typed(at, "causal")
    assert "unknown word" not in html(at)


def test_a_problem_that_does_not_fit_is_said_and_can_be_mended():
    at = typed(started(), "causal & docs")
    assert "docs needs the document lengths" in html(at)
    assert not at.metric
    labelled(at.text_input, "Documents, tokens").set_value("1000, 23").run()
    assert "must add up to kv_len 1024" in html(at)
    labelled(at.text_input, "Documents, tokens").set_value("1000, 24").run()
    assert expected("causal & docs", ps.Problem(1024, heads=9, docs=(1000, 24))).items() <= figures(at).items()


def test_the_form_edits_the_text_and_the_text_the_form():
    at = started()
    labelled(at.slider, "Window, keys back").set_value(31).run()
    assert text_box(at).value == "causal & (window(31, 0) | sink(4))"
    labelled(at.number_input, "Sink keys").set_value(9).run()
    assert text_box(at).value == "causal & (window(31, 0) | sink(9))"
    labelled(at.toggle, "causal").set_value(False).run()
    assert text_box(at).value == "window(31, 0) | sink(9)"
    typed(at, "causal & (window(200, 0) | strided(50))")
    assert labelled(at.selectbox, "Family").value == "strided"
    assert labelled(at.slider, "Window, keys back").value == 200
    assert labelled(at.number_input, "Stride").value == 50
    labelled(at.selectbox, "Family").set_value("chunk").run()
    assert text_box(at).value == "causal & chunk(256)"
    assert not at.exception


def test_a_free_form_text_says_so_and_choosing_free_form_changes_nothing():
    at = typed(started(), "causal & ~window(3, 0)")
    assert labelled(at.selectbox, "Family").value == "free"
    assert "No form for this text" in html(at)
    typed(at, "causal & chunk(9)")
    labelled(at.selectbox, "Family").set_value("free").run()
    assert text_box(at).value == "causal & chunk(9)"
    assert labelled(at.selectbox, "Family").value == "chunk"


def test_undo_and_redo():
    at = typed(typed(started(), "causal"), "dense")
    seen = []
    for name in ("undo", "undo", "undo", "redo"):
        if not at.button(key=name).proto.disabled:
            at.button(key=name).click().run()
        seen.append(text_box(at).value)
    preset = "causal & (window(255, 0) | sink(4))"
    assert seen == ["causal", preset, preset, "causal"]
    assert labelled(at.selectbox, "Family").value == "dense"


def test_a_link_restores_pattern_problem_and_block():
    at = started(p="causal & (window(63, 0) | sink(4))", q="4096", kv="5000", h="2", bq="128", bk="16")
    problem = ps.Problem(4096, 5000, heads=2)
    assert expected("causal & (window(63, 0) | sink(4))", problem, (128, 16)).items() <= figures(at).items()
    assert at.button(key="undo").proto.disabled  # there was nothing before the link
    assert (text_box(at).value, at.query_params["kv"]) == ("causal & (window(63, 0) | sink(4))", "5000")


def test_the_address_follows_the_work():
    at = typed(started(), "causal & chunk(8)")
    assert at.query_params["p"] == "causal & chunk(8)"
    typed(at, "causal & chunk(")
    assert at.query_params["p"] == "causal & chunk(8)"


@pytest.mark.parametrize("text", ["(" * 5000, "causal & " * 12_000, "<script>alert(1)</script>", "causal\0"])
def test_a_hostile_link_gets_the_error_line(text):
    at = started(p=text, q="99999999999999999999", docs="x")
    assert 'role="alert"' in html(at)
    assert "<script" not in html(at)
    assert len(at.warning) == 2
    assert figures(at)["Token, all"] == "22.2 %"


def test_a_hostile_text_in_the_box_gets_the_error_line():
    at = started()
    for text in ("~" * 20_000 + "causal", "causal" + " >> 1" * 5_000, "x" * 1_000_000):
        typed(at, text)
        assert 'role="alert"' in html(at)


def test_a19_values_survive_a_change_of_page():
    at = started("design")
    labelled(at.slider, "Window, keys back").set_value(128).run()
    labelled(at.number_input, "Query rows, tokens").set_value(2048).run()
    for page in ("gallery", "export", "design"):
        at.session_state["page"] = page
        at.run()
        assert not at.exception
    assert labelled(at.slider, "Window, keys back").value == 128
    assert labelled(at.number_input, "Query rows, tokens").value == 2048
    assert text_box(at).value == "causal & (window(128, 0) | sink(4))"
    labelled(at.slider, "Window, keys back").set_value(64).run()
    assert text_box(at).value == "causal & (window(64, 0) | sink(4))"


def test_quality_is_what_analyze_says():
    from pattern_studio.capture import bundled
    from pattern_studio.metrics import analyze

    text = "causal & (window(31, 0) | sink(2))"
    at = typed(started(), text)
    report = analyze(ps.parse(text), bundled(), block=64, metrics=["damage", "recall", "output_error", "oracle"])
    compute.quality_job("test", ps.parse(text), (64, 64), None).result(120)
    at.run()
    shown = {
        "Damage": numbers.fraction(report.weighted_damage),  # this capture knows its layers' sensitivity
        "Recall, mean": numbers.percent(report.recall.mean),
        "Recall, p1": numbers.percent(report.recall.p1),
        "Recall, min": numbers.percent(report.recall.min),
        "Output error": numbers.fraction(report.output_error.rel_l2),
        "Oracle recall": numbers.percent(report.oracle_recall),
        "Regret": numbers.percent(report.regret),
    }
    assert shown.items() <= figures(at).items()


def test_a_pattern_that_does_not_fit_the_capture_says_why():
    text = "heads({0: causal, 1: dense})"
    at = started(p=text, h="2")
    job = compute.quality_job("test", ps.parse(text), (64, 64), None)
    assert job.exception(120) is not None
    at.run()
    assert "Not measured on this capture: " in html(at)
    assert labelled(at.selectbox, "Head").options == ["head 0", "head 1"]


def test_the_quality_page_shows_layer_head_and_worst_rows():
    pattern = ps.parse("causal & (window(255, 0) | sink(4))")
    compute.quality_job("test", pattern, (64, 64), None).result(120)
    for layer in (-1, 20):
        compute.mass_job("test", layer, (64, 64)).result(120)
    at = started("quality")
    at.run()
    assert "Layer 7, head 0" in html(at)
    assert html(at).count("<mark>") == 5
    labelled(at.selectbox, "layer").set_value(20).run()
    labelled(at.selectbox, "head").set_value(3).run()
    assert "Layer 20, head 3" in html(at)
    assert not at.exception


def test_the_compare_page_says_what_diff_and_analyze_say():
    from pattern_studio.capture import bundled
    from pattern_studio.metrics import analyze

    texts = ("causal & (window(255, 0) | sink(4))", "causal & window(255, 0)")
    for text in texts:
        compute.quality_job("test", ps.parse(text), (64, 64), None).result(120)
    at = started("compare", vs1=texts[1])
    found = ps.diff(ps.parse(texts[0]), ps.parse(texts[1]), ps.Problem(1024, heads=9), 64)
    assert "B lies in A, which keeps more" in html(at)
    assert found.verdict == "superset"
    both, only_a = numbers.count(found.pairs.both), numbers.count(found.pairs.only_a)
    assert f"pairs: {both} in both, {only_a} only in A, 0 only in B" in html(at)
    for text in texts:
        report = analyze(ps.parse(text), bundled(), block=64, metrics=["recall", "oracle"])
        assert f"<td>{numbers.percent(report.recall.mean)}</td>" in html(at)
        assert f"<td>{numbers.percent(report.regret)}</td>" in html(at)


def test_the_reasons_are_those_of_explain():
    at = started()
    session = at.session_state["studio session"]
    session.happened(ToolChosen("why"))
    session.happened(Boxed(Viewport(512, 576, 64, 128)))
    at.run()
    found = ps.explain(ps.parse("causal & (window(255, 0) | sink(4))"), 544, 96, ps.Problem(1024))
    assert not found.allowed
    assert "query row 544, key 96: not allowed" in html(at)
    assert "<mark>window(255, 0)</mark> | <mark>sink(4)</mark>" in html(at)
    assert all(reason.sentence.replace("<", "&lt;") in html(at) for reason in found.reasons)
    session.happened(ToolChosen("zoom"))
    assert "query row 544" not in html(at.run())


def test_a_thumbnail_opens_its_head():
    text = "causal & heads({range(0, 8): window(63, 0), 8: dense})"
    compute.quality_job("test", ps.parse(text), (64, 64), None).result(120)
    at = started(p=text)
    at.button(key="open head 8").click().run()
    assert labelled(at.selectbox, "Head").value == 8
    assert html(at).count('alt="Pattern of head') == 9


def test_balance_is_the_longest_line_of_tiles_over_the_mean():
    at = typed(started(), "causal & window(63, 0)")
    assert figures(at)["Balance"] == "1.03"  # of 16 rows of tiles the first has 1, the others 2: 2 / (31 / 16)
    (shown,) = [metric for metric in at.metric if metric.label == "Balance"]
    assert "as the backward pass goes: 1.03." in shown.help
    assert figures(typed(at, "empty"))["Balance"] == "none"


def test_patterns_to_compare_with_are_added_mended_and_taken_away():
    at = started("compare")
    assert "Write a second pattern above" in html(at)
    compute.quality_job("test", ps.parse("causal"), (64, 64), None).result(120)
    at.button(key="start 2").click().run()
    assert labelled(at.text_input, "Pattern B").value == "causal"
    labelled(at.text_input, "Pattern C").set_value("causal & sinc(4)").run()
    assert "did you mean" in html(at)
    assert not at.exception
    at.button(key="without 1").click().run()
    at.button(key="without 0").click().run()
    assert "Write a second pattern above" in html(at)
    assert not at.exception


def test_a_pattern_to_compare_with_that_does_not_fit_says_so():
    compute.quality_job("test", ps.parse("causal"), (64, 64), None).result(120)
    at = started("compare", p="causal", vs1="causal & docs")
    assert "B: docs needs the document lengths" in html(at)
    assert not at.exception


def test_every_export_is_shown_with_how_faithful_it_is():
    from pattern_studio.exporters import check, export, targets

    pattern, problem = ps.parse("causal & (window(255, 0) | sink(4))"), ps.Problem(1024, heads=9)
    at = started("export")
    for name in targets():
        labelled(at.radio, "Target").set_value(name).run()
        assert not at.exception
        fidelity = check(pattern, problem, 64, name)
        assert len(at.warning) == (fidelity.kind != "exact"), name
        if fidelity.kind in ("cover", "lossy"):
            assert not at.get("download_button"), name  # never without being asked for by name
            labelled(at.toggle, "Write it all the same").set_value(True).run()
        assert len(at.get("download_button")) == (fidelity.kind != "unsupported"), name
        if name == "flex_attention":
            text = export(pattern, problem, 64, to=name).content
            assert at.code[-1].value.splitlines() == text.splitlines()[:400]


def test_the_gallery_opens_a_preset_in_design():
    at = started("gallery")
    assert len(at.button) == len(named())
    assert "21.9 % of all pairs, 27.3 % of tiles" in html(at)


def test_sessions_do_not_see_each_other():
    one, two = started(), started()
    typed(one, "dense")
    two.run()
    assert text_box(two).value == "causal & (window(255, 0) | sink(4))"
