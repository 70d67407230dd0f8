"""The Reach page in a real browser: layers are played, looked at one by one, and traced for one query."""

from __future__ import annotations

import pytest
from pattern_studio_app import numbers
from playwright.sync_api import BrowserContext, Page, expect

import pattern_studio as ps
from pattern_studio.metrics import receptive_field
from tests.app.visit import figure, number, opened, settled

pytestmark = pytest.mark.browser

LINK = "reach?p=causal+%26+window%2815%2C+0%29&q=256&h=1&bq=16&bk=16"


def test_layers_are_played_and_looked_at(page: Page, address: str, browser: BrowserContext):
    told = receptive_field(ps.parse("causal & window(15, 0)"), ps.Problem(256), layers=8, block=16)
    shares = [numbers.percent(depth.coverage) for depth in told.depths]
    opened(page, f"{address}/{LINK}")
    title = page.locator(".js-plotly-plot .annotation-text").first
    expect(title).to_have_text(f"after 8 layers: {shares[7]} of causal pairs")
    settled(page)
    before = page.locator(".js-plotly-plot").first.bounding_box()
    page.locator(".updatemenu-button", has_text="Play").click()
    expect(title).to_have_text(f"after 1 layer: {shares[0]} of causal pairs")
    expect(title).to_have_text(f"after 8 layers: {shares[7]} of causal pairs")  # and on to the end
    assert page.locator(".js-plotly-plot").first.bounding_box() == before  # nothing has jumped

    page.get_by_role("button", name="Play").focus()
    page.keyboard.press("Enter")  # the same by keyboard
    expect(title).to_have_text(f"after 1 layer: {shares[0]} of causal pairs")
    expect(title).to_have_text(f"after 8 layers: {shares[7]} of causal pairs")

    slider = page.get_by_role("slider", name="After layers")
    slider.focus()
    for _ in range(5):
        page.keyboard.press("ArrowLeft")  # by keyboard
    expect(figure(page, "Reached after 3")).to_have_text(shares[2])
    expect(title).to_have_text(f"after 3 layers: {shares[2]} of causal pairs")
    settled(page)
    assert page.locator(".js-plotly-plot").first.bounding_box() == before

    number(page, "Query row").fill("100")
    number(page, "Query row").press("Enter")
    expect(page.get_by_text("queries 96 to 111")).to_be_visible()
    expect(page.get_by_text("query 100", exact=True)).to_be_visible()  # the curve's name

    page.get_by_role("link", name="Export").click()  # and back: what was chosen is still there
    expect(page.get_by_text("Target", exact=True)).to_be_visible()
    page.get_by_role("link", name="Reach").click()
    expect(figure(page, "Reached after 3")).to_have_text(shares[2])
    expect(number(page, "Query row")).to_have_value("100")


@pytest.mark.parametrize(("width", "height"), [(1280, 800), (1024, 768)])
def test_nothing_is_cut_off(page: Page, address: str, width: int, height: int):
    page.set_viewport_size({"width": width, "height": height})
    opened(page, f"{address}/{LINK}")
    expect(page.locator(".js-plotly-plot .heatmaplayer image")).to_have_count(2)
    assert page.locator(".stMain").evaluate("e => e.scrollWidth - e.clientWidth") == 0
    for n in range(3):
        place = page.locator(".js-plotly-plot").nth(n).bounding_box()
        assert place["x"] + place["width"] <= width
        assert place["y"] + place["height"] <= height
