"""A long measurement is stopped by its button, begun again, and overtaken, in a real browser."""

from __future__ import annotations

from urllib.parse import urlencode

import pytest
from playwright.sync_api import Page, expect

from tests.app.visit import box, figure, opened, settled

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
