"""The Performance page in a real browser: choosing what was measured, and a file of one's own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pattern_studio_app.components.time_panel import milliseconds
from pattern_studio_app.prediction import MODEL_CARD
from playwright.sync_api import Page, expect

import pattern_studio as ps
from pattern_studio.metrics import layout_cost
from tests.app.timing_rows import TEXT, data, linear, row
from tests.app.visit import FRESH, figure, opened, settled

pytestmark = pytest.mark.browser

LINK = "performance?p=causal+%26+window%281023%2C+0%29&q=4096&h=16&bq=128&bk=128"


def test_results_are_chosen_and_a_file_of_ones_own_is_added(page: Page, address: str, tmp_path: Path):
    opened(page, f"{address}/{LINK}")
    page.get_by_role("combobox", name="Card").click()
    page.get_by_role("option", name=MODEL_CARD).click()  # of which the expected predictions are
    cost = layout_cost(ps.lower(ps.parse(TEXT), q_len=4096, heads=16, block=128), 128)
    expect(figure(page, "Predicted time")).to_have_text(milliseconds(cost.forward_ms))
    expect(page.get_by_text("Measured time: none")).to_be_visible()
    settled(page)
    page.get_by_role("radio", name="Backward").click()
    expect(figure(page, "Predicted time")).to_have_text(milliseconds(cost.backward_ms))
    settled(page)

    bad, good = tmp_path / "bad.json", tmp_path / "mine.json"
    bad.write_text(json.dumps({"rows": [row(ms=-1)]}))
    good.write_bytes(data(*linear(), row(pattern=TEXT, arm="flex", ms=0.75)))
    page.get_by_role("button", name="Results").click()
    chooser = page.locator("[data-testid=stFileUploaderDropzoneInput]")
    chooser.set_input_files(bad)
    expect(page.get_by_text("bad.json, row 1: expected ms as a number above 0, got -1")).to_be_visible()
    expect(chooser).to_have_count(1)  # the next uploader has taken the place of the one that was used
    chooser.set_input_files(good)
    expect(page.get_by_text("mine.json")).to_be_visible()
    expect(page.get_by_text("bad.json, row 1")).to_have_count(0)
    page.keyboard.press("Escape")
    settled(page)

    page.get_by_role("combobox", name="Card").click()
    page.get_by_role("option", name="Card X").click()
    page.get_by_role("radio", name="Forward").click()
    expect(figure(page, "Measured: FlexAttention, compiled")).to_have_text("0.750 ms")
    layout = ps.lower(ps.parse(TEXT), q_len=4096, heads=16, block=128)
    expect(figure(page, "Predicted time")).to_have_text(milliseconds(0.5 + 4 * 128 * layout.tile_pairs / 200e9))
    for shown in ("predicted", "measured"):
        expect(page.locator(f"{FRESH} .legend .legendtext", has_text=f"this pattern, {shown}")).to_be_visible()

    page.get_by_role("link", name="Reach").click()  # and back: card and file are still there
    expect(figure(page, "Layers to reach all")).to_be_visible()
    page.get_by_role("link", name="Performance").click()
    expect(figure(page, "Measured: FlexAttention, compiled")).to_have_text("0.750 ms")
