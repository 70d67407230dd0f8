"""A long measurement is stopped by its button, begun again, and overtaken, in a real browser."""

from __future__ import annotations

from urllib.parse import urlencode

import pytest
from playwright.sync_api import Page, expect

from pattern_studio.plot.colours import DARK, LIGHT
from tests.app.visit import box, figure, opened, rgb, settled

pytestmark = pytest.mark.browser

LONG = "causal & random(200)"  # many seconds, with tiles of 16 x 1


def test_a_long_measurement_is_stopped_and_the_page_goes_on(page: Page, address: str):
    opened(page, f"{address}/?{urlencode({'p': LONG, 'h': 9, 'bq': 16, 'bk': 1})}")
    for _ in range(2):  # begun again it can be stopped again
        page.get_by_role("button", name="Stop", exact=True).click()
        expect(page.get_by_text("Stopped before it was done.")).to_be_visible()
        settled(page)
        expect(box(page)).to_have_value(LONG)
        expect(figure(page, "Recall, mean")).to_have_text("…")  # no number
        page.get_by_role("button", name="Begin again").click()
    box(page).fill("causal")  # another pattern is measured without being asked twice
    expect(figure(page, "Recall, mean")).to_have_text("100 %")


@pytest.mark.parametrize("path", ["", "quality"])
def test_stop_stands_beside_what_it_stops_and_the_theme_is_followed_meanwhile(page: Page, address: str, path: str):
    page.goto(f"{address}/{path}?{urlencode({'p': 'causal & random(199)', 'h': 9, 'bq': 16, 'bk': 1})}")
    line = page.get_by_text("Measuring the pattern on the capture")
    expect(line).to_have_css("color", rgb(LIGHT.quiet))
    expect(line.locator(".ps-seconds")).to_have_text("1 s")
    before, stop = line.bounding_box(), page.get_by_role("button", name="Stop", exact=True)
    expect(stop).to_be_visible()
    after, beside = line.bounding_box(), stop.bounding_box()
    assert before == after  # nothing moved when it came
    assert 0 <= beside["x"] - after["x"] - after["width"] < 30
    assert abs(beside["y"] + beside["height"] / 2 - after["y"] - after["height"] / 2) < 3
    page.emulate_media(color_scheme="dark")
    expect(line).to_have_css("color", rgb(DARK.quiet))
    expect(stop).to_be_visible()
    page.emulate_media(color_scheme="light")
    stop.click()
    expect(page.get_by_text("Stopped before it was done.")).to_be_visible()
