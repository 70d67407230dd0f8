"""A long measurement in a real browser: it is stopped by the button in its row, begun again, and overtaken."""

from __future__ import annotations

import re
from urllib.parse import urlencode

import pytest
from playwright.sync_api import Page, expect

from tests.app.visit import box, drawn_map, figure, opened, settled

pytestmark = pytest.mark.browser

LONG = "causal & random(200)"  # many seconds, with tiles of 16 x 1
LONGER = "causal & random(800)"  # the best part of a minute
# The line with the seconds that are counted, its words without the room that is kept for more, and the Stop, each as
# left, top, right, bottom: read in one go, so that no run of the page comes in between.
PLACES = """() => {
  const there = (parts) => [...parts].filter(e => e.checkVisibility() && !e.closest('[data-stale=true]'));
  const lines = there(document.querySelectorAll('.ps-note.ps-waits')).filter(e => e.querySelector('.ps-seconds'));
  const stops = there(document.querySelectorAll('button')).filter(e => e.innerText.trim() === 'Stop');
  if (lines.length !== 1 || stops.length !== 1) return null;
  const words = document.createRange();
  words.selectNodeContents(lines[0]);
  return [lines[0], words, stops[0]].map(e => e.getBoundingClientRect()).map(b => [b.left, b.top, b.right, b.bottom]);
}"""


def test_a_long_measurement_is_stopped_and_the_page_goes_on(page: Page, address: str):
    opened(page, f"{address}/?{urlencode({'p': LONG, 'h': 9, 'bq': 16, 'bk': 1})}")
    expect(drawn_map(page)).to_be_visible()
    for _ in range(2):  # begun again it can be stopped again
        page.get_by_role("button", name="Stop", exact=True).click()
        expect(page.get_by_text("Stopped before it was done.")).to_be_visible()
        settled(page)
        expect(box(page)).to_have_value(LONG)
        expect(figure(page, "Recall, mean")).to_have_text("…")  # no number
        page.get_by_role("button", name="Begin again").click()
    box(page).fill("causal")  # another pattern is measured without being asked twice
    expect(figure(page, "Recall, mean")).to_have_text("100 %")


def test_a_long_layout_is_overtaken_by_the_next_text_and_can_be_stopped(page: Page, address: str):
    opened(page, f"{address}/?{urlencode({'p': LONGER, 'h': 9, 'bq': 16, 'bk': 1})}")
    stop = page.get_by_role("button", name="Stop", exact=True)
    expect(stop).to_be_visible()
    expect(drawn_map(page)).to_have_count(0)
    box(page).fill("causal & window(300, 0)")
    expect(drawn_map(page)).to_be_visible(timeout=12_000)  # it takes a second; what it overtook a quarter of a minute
    expect(page.get_by_text("Measured exactly")).to_be_visible()
    settled(page)
    before, density = drawn_map(page).bounding_box(), figure(page, "Block").inner_text()
    box(page).fill(LONGER)
    expect(stop).to_be_visible()
    assert drawn_map(page).bounding_box() == before, "the last map stays where it was"
    stop.click()
    expect(page.get_by_text("Stopped before it was done.")).to_be_visible()
    settled(page)
    expect(drawn_map(page)).to_have_count(0)
    expect(figure(page, "Block")).to_have_text("…")
    box(page).fill("causal & window(300, 0)")
    expect(figure(page, "Block")).to_have_text(density)
    expect(drawn_map(page)).to_be_visible()


@pytest.mark.parametrize(("where", "told"), [("compare", "A lies in B"), ("export", "Python text")])
def test_a_long_layout_can_be_stopped_elsewhere_too(page: Page, address: str, where: str, told: str):
    query = {"p": "causal & window(300, 0)", "h": 9, "bq": 16, "bk": 1, "vs1": "causal"}
    opened(page, f"{address}/{where}?{urlencode(query)}")
    said = page.get_by_text(told).first
    expect(said).to_be_visible()
    settled(page)
    before = said.bounding_box()
    box(page).fill("causal & random(801)")
    stop = page.get_by_role("button", name="Stop", exact=True)
    expect(stop).to_be_visible()
    assert said.bounding_box() == before, "what stood there stays where it was"
    stop.click()
    expect(page.get_by_text("Stopped before it was done.")).to_be_visible()
    settled(page)
    expect(said).to_have_count(0)
    expect(page.get_by_role("button", name="Begin again")).to_have_count(1)
    box(page).fill("causal & window(301, 0)")
    expect(said).to_be_visible(timeout=8_000)


@pytest.mark.parametrize("width", [1280, 1024])
def test_on_quality_stop_stands_in_the_row_of_its_sentence(page: Page, address: str, width: int):
    page.set_viewport_size({"width": width, "height": 800})
    opened(page, f"{address}/quality?{urlencode({'p': LONGER, 'h': 9, 'bq': 16, 'bk': 1})}")
    stop = page.get_by_role("button", name="Stop", exact=True)
    expect(stop).to_be_visible()
    line, words, button = page.wait_for_function(PLACES).json_value()
    assert words[3] - words[1] < 1.5 * 18, "the sentence is one row"
    assert line[1] <= (button[1] + button[3]) / 2 <= line[3], "the middle of the Stop is in that row"
    assert words[2] <= button[0] <= words[2] + 40, "and right behind it"
    assert button[2] <= width
    stop.click()  # also so that nothing waits for it: there is one worker
    expect(page.get_by_text("Stopped before it was done.")).to_be_visible()


def test_a_running_fit_tells_how_far_it_is_and_is_stopped(page: Page, address: str):
    opened(page, f"{address}/fit?{urlencode({'p': 'causal'})}")
    settled(page)
    # A dozen seconds; free tiles take one, which can be over between two looks at the page.
    page.get_by_role("combobox", name="Layout").click()
    page.get_by_role("option", name="Best family per head").click()
    settled(page)
    page.get_by_role("button", name="Fit", exact=True).click()
    bar = page.get_by_role("progressbar")
    expect(bar).to_be_visible()
    expect(page.get_by_text(re.compile(r"step \d+ of \d+, \d+ s"))).to_be_visible()
    page.get_by_role("button", name="Stop", exact=True).click()
    expect(page.get_by_text("Stopped; nothing was changed.")).to_be_visible()
    expect(bar).to_have_count(0)
    settled(page)
    expect(box(page)).to_have_value("causal")
