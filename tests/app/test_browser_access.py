"""Every page for everyone: names for all controls, keys alone, no sideways scroll, nothing that jumps."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from pattern_studio_app.router import PAGES
from playwright.sync_api import BrowserContext, Page, expect

from tests.app.visit import box, drawn_map, figure, opened, settled

pytestmark = pytest.mark.browser

PATHS = ["", *(path for _, _, path, _ in PAGES[1:])]  # the first page has the bare address
# What can be operated, and pictures, without words that a screen reader could say.
NAMELESS = """() => {
  const words = (e) => (e.getAttribute('aria-label') || e.innerText || e.alt || e.title || e.placeholder ||
    [...(e.labels ?? [])].map(l => l.innerText).join(' ') || (e.getAttribute('aria-labelledby') ?? '').split(' ')
      .map(id => document.getElementById(id)?.innerText ?? '').join(' ')).trim();
  const seen = (e) => e.checkVisibility({ visibilityProperty: true }) && e.getClientRects().length;
  const all = document.querySelectorAll('a[href], button, input, select, textarea, [role=button], [role=slider], ' +
    '[role=combobox], [role=radio], [role=checkbox], img');
  return [...all].filter(e => seen(e) && e.type !== 'hidden' && e.type !== 'file' && e.alt !== '' && !words(e))
    .map(e => e.outerHTML.slice(0, 160));
}"""


@pytest.fixture(scope="module")
def one(launched: Callable[[], BrowserContext]) -> Iterator[Page]:
    """One page for all paths: they only look."""
    page = launched().new_page()
    yield page
    page.close()


@pytest.mark.parametrize("path", PATHS)
def test_a_page_fits_its_window_and_all_on_it_has_a_name(one: Page, address: str, path: str):
    one.set_viewport_size({"width": 1280, "height": 800})
    one.goto(f"{address}/{path}")
    expect(one.locator(".stMain .stElementContainer").first).to_be_visible()
    settled(one)
    expect(one.get_by_test_id("stSkeleton")).to_have_count(0)
    for width in (1280, 1024):
        one.set_viewport_size({"width": width, "height": 800})
        one.wait_for_timeout(300)  # the page is laid out anew
        over = one.locator(".stMain").evaluate("e => e.scrollWidth - e.clientWidth")
        assert over <= 0, f"{path} is {over} pixels too wide at {width}"
    assert one.evaluate(NAMELESS) == []
    assert one.locator(".stException").count() == 0


def test_the_text_is_reached_by_tab_and_changed_without_a_mouse(page: Page, address: str):
    opened(page, address)
    settled(page)
    reached = "e => e === document.activeElement"
    for _ in range(len(PATHS) + 6):
        page.keyboard.press("Tab")
        if box(page).evaluate(reached):
            break
    assert box(page).evaluate(reached)
    page.keyboard.press("Control+a")
    page.keyboard.type("causal")
    expect(figure(page, "Token, causal")).to_have_text("100 %")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")  # undo stands next to the text
    expect(box(page)).to_have_value("causal & (window(255, 0) | sink(4))")


# Where each thing stands, in every frame that is painted from now on: a list of rounded boxes for each name.
WATCH = """() => {
  const metric = (label) => [...document.querySelectorAll('[data-testid=stMetric]')]
    .filter(e => e.querySelector('[data-testid=stMetricLabel]')?.innerText.trim() === label)
    .map(e => e.querySelector('[data-testid=stMetricValue]'));
  const parts = {
    text: () => [...document.querySelectorAll('[aria-label=Pattern]')],
    map: () => [...document.querySelectorAll('*')]
      .flatMap(e => [...e.shadowRoot?.querySelectorAll('canvas[data-drawn]') ?? []]),
    block: () => metric('Block'),
    regret: () => metric('Regret'),
    quality: () => [...document.querySelectorAll('.st-key-quality')],
    heads: () => [...document.querySelectorAll("input[aria-label='Query heads']")],
  };
  const seen = window.whereSeen = Object.fromEntries(Object.keys(parts).map(name => [name, []]));
  const look = () => {
    for (const [name, found] of Object.entries(parts)) {
      const boxes = found().filter(e => e.checkVisibility()).map(e => {
        const { x, y, width, height } = e.getBoundingClientRect();
        return [x, y, width, height].map(Math.round).join(' ');
      });
      const told = [...new Set(boxes)].join(' and ') || 'gone';
      if (!seen[name].includes(told)) seen[name].push(told);
    }
    window.watching = requestAnimationFrame(look);
  };
  look();
}"""


def test_nothing_jumps_when_quality_comes_and_the_pattern_changes(page: Page, address: str):
    """In no frame, also while a part is drawn anew and for a moment is neither old nor new to Streamlit."""
    opened(page, address)
    expect(page.get_by_text("Measured exactly")).to_be_visible()
    expect(drawn_map(page)).to_be_visible()
    settled(page)
    page.evaluate(WATCH)
    box(page).fill("causal & (window(127, 0) | sink(4))")
    expect(page.get_by_text("the 127 keys before it")).to_be_visible()
    settled(page)
    expect(page.get_by_text("Measured exactly")).to_be_visible()
    page.wait_for_timeout(200)  # the frames after it
    seen = page.evaluate("() => { cancelAnimationFrame(window.watching); return window.whereSeen }")
    assert {name: len(places) for name, places in seen.items()} == dict.fromkeys(seen, 1), seen
    assert ["gone"] not in seen.values(), seen
