"""How soon the app shows something, measured in the browser and reported with the tests; no time is demanded here.

The aims are for cores that nothing else uses: see benchmarks/app_times.py, whose measuring this is.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from playwright.sync_api import BrowserContext, Page

from benchmarks.app_times import LENGTHS, changes, first_paint

pytestmark = pytest.mark.browser

Record = Callable[[str, object], None]


# Streamlit's grey bars, which stand for elements whose code is not there yet.
BARS = """(() => { window.psBars = 0; new MutationObserver(() => {
  window.psBars += document.querySelectorAll('.stMain [data-testid=stSkeleton]').length;
}).observe(document, { childList: true, subtree: true }); })()"""


def test_first_paint_shows_map_figures_and_quality(browser: BrowserContext, address: str, record_property: Record):
    page = browser.new_page()
    page.add_init_script(BARS)
    seconds = first_paint(page, address)
    for part, value in seconds.items():
        record_property(f"first paint, {part}, s", round(value, 3))
    assert set(seconds) == {"answer", "text", "figures", "map", "quality"}
    assert page.evaluate("window.psBars") == 0  # each would be drawn, thrown away, and all drawn again
    assert page.locator("[aria-label=Pattern]").input_value() == "causal & (window(255, 0) | sink(4))"
    page.close()


@pytest.mark.parametrize("name", LENGTHS)
def test_a_change_shows_another_map_and_other_figures(page: Page, address: str, name: str, record_property: Record):
    q_len, block = LENGTHS[name]
    for how, runs in changes(page, address, q_len, block, 1).items():
        for part, value in runs[0].items():
            record_property(f"change {name} {how}, {part}, s", round(value, 3))
        assert set(runs[0]) == {"map", "figures"}
    wide = q_len // 64
    assert page.locator("input[aria-label='Sink keys']:visible").input_value() == str(wide)
    assert page.locator("[aria-label=Pattern]:visible").input_value() == (
        f"causal & (window({q_len // 16}, 0) | sink({wide}))"
    )
