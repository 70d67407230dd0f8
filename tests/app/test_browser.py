"""The real app in a real browser: what a visitor types, drags and opens, and reads off the page."""

from __future__ import annotations

import pytest
from pattern_studio_app import numbers
from playwright.sync_api import BrowserContext, Page, expect

import pattern_studio as ps
from pattern_studio.metrics import layout_stats
from tests.app.visit import box, drag, drawn_map, figure, number, on_map, opened, settled

pytestmark = pytest.mark.browser

TEXT = "causal & (window(63, 0) | sink(4))"


def shown(text: str, problem: ps.Problem, block: tuple[int, int] = (64, 64)) -> dict[str, str]:
    stats = layout_stats(ps.parse(text), problem, block)
    return {
        "Token, causal": numbers.percent(stats.density.token_of_causal),
        "Token, all": numbers.percent(stats.density.token),
        "Block": numbers.percent(stats.density.block),
        "Partial": numbers.count(stats.tiles.partial),
        "Efficiency": numbers.percent(stats.block_efficiency),
    }


def test_a_page_opened_directly_on_a_fresh_server(page: Page, address: str):
    opened(page, f"{address}/export")
    expect(box(page)).to_have_value("causal & (window(255, 0) | sink(4))")
    expect(page.locator(".stCode")).to_contain_text("A block mask for FlexAttention")


def test_typing_a_pattern_shows_its_density(page: Page, address: str):
    opened(page, address)
    box(page).fill(TEXT)
    for label, value in shown(TEXT, ps.Problem(1024, heads=9)).items():
        expect(figure(page, label)).to_have_text(value)
    expect(drawn_map(page)).to_be_visible()


def test_an_error_points_at_its_place_while_typing(page: Page, address: str):
    opened(page, address)
    box(page).fill("")
    box(page).press_sequentially("causal & windw(3, 0)", delay=5)  # no Enter
    line = page.locator(".ps-status[role=alert]")
    expect(line).to_contain_text("unknown word 'windw'; did you mean 'window'?")
    caret = line.locator(".wrong").first.bounding_box()
    field = box(page).bounding_box()
    letter = page.evaluate(
        """() => { const input = document.querySelector('[aria-label=Pattern]'), style = getComputedStyle(input);
                   const pen = document.createElement('canvas').getContext('2d'); pen.font = style.font;
                   return parseFloat(style.paddingLeft) + pen.measureText('causal & ').width; }"""
    )
    assert abs(caret["x"] - field["x"] - letter) < 6  # under the w of windw


def test_a_link_opens_the_same_work(page: Page, address: str, browser: BrowserContext):
    opened(page, f"{address}/?p=causal&q=4096&h=2&bq=128&bk=16")
    box(page).fill(TEXT)
    expected = shown(TEXT, ps.Problem(4096, heads=2), (128, 16))
    expect(figure(page, "Partial")).to_have_text(expected["Partial"])
    page.wait_for_url("**window**")
    other = browser.new_page()
    opened(other, page.url)
    expect(box(other)).to_have_value(TEXT)
    for label, value in expected.items():
        expect(figure(other, label)).to_have_text(value)
    other.close()


def test_a19_a_value_survives_a_change_of_page(page: Page, address: str):
    opened(page, address)
    settled(page)
    sink = number(page, "Sink keys")
    sink.fill("128")
    sink.press("Enter")
    expect(box(page)).to_have_value("causal & (window(255, 0) | sink(128))")
    page.get_by_role("link", name="Gallery").click()
    expect(page.get_by_text("StreamingLLM", exact=True)).to_be_visible()
    page.get_by_role("link", name="Design").click()
    expect(number(page, "Sink keys")).to_have_value("128")
    expect(box(page)).to_have_value("causal & (window(255, 0) | sink(128))")


def test_a_box_on_the_map_joins_the_pattern_and_can_be_undone(page: Page, address: str):
    opened(page, address)
    settled(page)
    page.get_by_text("Add", exact=True).click()
    expect(page.get_by_text("Click or drag to add; with Shift, draw freely.")).to_be_visible()
    drag(page, on_map(page, 0.13, 0.51), on_map(page, 0.24, 0.74))
    painted = "causal & (window(255, 0) | sink(4)) | rect(range(128, 256), range(512, 768))"
    expect(box(page)).to_have_value(painted)
    settled(page)
    page.get_by_role("button", name="undo icon").first.click()
    expect(box(page)).to_have_value("causal & (window(255, 0) | sink(4))")
    page.get_by_text("Zoom", exact=True).click()  # at once: a run that is overtaken must not lose what it set
    sink = number(page, "Sink keys")
    expect(sink).to_have_value("4")
    sink.fill("5")
    sink.press("Enter")
    expect(box(page)).to_have_value("causal & (window(255, 0) | sink(5))")


def test_comparing_two_patterns_and_looking_closer_at_both(page: Page, address: str, browser: BrowserContext):
    page.goto(f"{address}/compare")
    page.get_by_role("button", name="causal & window(255, 0)", exact=True).click()
    expect(page.get_by_text("B lies in A, which keeps more")).to_be_visible()
    expect(page.locator(".ps-figures tr")).to_have_count(3)
    maps = page.locator(".js-plotly-plot .nsewdrag")
    field = maps.nth(2).bounding_box()  # the difference
    page.mouse.move(field["x"] + 0.1 * field["width"], field["y"] + 0.6 * field["height"])
    page.mouse.down()
    page.mouse.move(field["x"] + 0.4 * field["width"], field["y"] + 0.9 * field["height"], steps=5)
    page.mouse.up()
    expect(page.get_by_role("button", name="Whole map")).to_be_enabled()
    for n in range(3):  # all maps look at the same part: its first key is no longer 0
        expect(page.locator(".js-plotly-plot").nth(n).locator(".xtick text").first).not_to_have_text("0")
    page.wait_for_url("**vs1**")
    other = browser.new_page()
    other.goto(page.url)
    expect(other.locator("[aria-label='Pattern B']:visible")).to_have_value("causal & window(255, 0)")
    other.close()


def test_the_essentials_fit_in_1280_by_800(page: Page, address: str):
    opened(page, address)
    expect(figure(page, "Regret")).to_be_visible()
    expect(drawn_map(page)).to_be_visible()
    main = page.locator(".stMain")
    assert main.evaluate("e => [e.scrollWidth - e.clientWidth, e.scrollHeight - e.clientHeight]") == [0, 0]
    for part in (box(page), drawn_map(page), figure(page, "Regret")):
        place = part.bounding_box()
        assert place["x"] + place["width"] <= 1280
        assert place["y"] + place["height"] <= 800


def test_a_million_tokens_are_drawn(page: Page, address: str):
    opened(
        page, f"{address}/?p={TEXT.replace(' ', '+').replace('&', '%26').replace('|', '%7C')}&q=1048576&bq=128&bk=128"
    )
    expect(figure(page, "Empty rows")).to_have_text("0")
    expect(page.get_by_text("one cell = 2,048 x 2,048 tokens, mean of 256 tiles")).to_be_visible()
