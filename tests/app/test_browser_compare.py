"""Compare in a real browser: one cursor on all maps, by pointer and by keys, and the trade-off against each measure."""

from __future__ import annotations

from urllib.parse import urlencode

import pytest
from playwright.sync_api import Locator, Page, expect

import pattern_studio as ps
from tests.app.visit import FRESH, opened, settled

pytestmark = pytest.mark.browser

A, B = "causal & (window(255, 0) | sink(4))", "causal & window(255, 0)"
LINES = ".studio-cursor"


def compared(page: Page, address: str, *texts: str) -> Locator:
    """The page with these patterns side by side, drawn to its end; gives the line that reads the place."""
    beside = {f"vs{n}": text for n, text in enumerate(texts[1:], 1)}
    opened(page, f"{address}/compare?{urlencode({'p': texts[0], 'q': 512, 'h': 9, 'bq': 64, 'bk': 64, **beside})}")
    expect(page.locator(".ps-figures tr")).to_have_count(1 + len(texts))
    settled(page)
    return page.get_by_role("status", name="What the patterns have at one place")


def has(text: str, row: int, key: int) -> str:
    """What a pattern has in the cell of a place, in the words of the line: cells are 4 x 4 tokens here."""
    mask = ps.dense_mask(ps.parse(text), ps.Problem(512))[0]
    share = mask[row // 4 * 4 :, key // 4 * 4 :][:4, :4].mean()
    return {0: "nothing", 1: "all"}.get(share) or f"{round(100 * share)} %"


def test_the_same_place_is_marked_on_all_maps(page: Page, address: str):
    line = compared(page, address, A, B)
    expect(line).to_contain_text("Point at a map")
    maps = page.locator(".js-plotly-plot .nsewdrag")
    field = maps.nth(1).bounding_box()
    for row, key in ((400, 2), (300, 299), (20, 400), (511, 511), (300, 45)):
        page.mouse.move(
            field["x"] + (key + 0.5) / 512 * field["width"], field["y"] + (row + 0.5) / 512 * field["height"]
        )
        expect(line).to_have_text(
            f"query row {row}, key {key}: A {has(A, row, key)}, B {has(B, row, key)} of this cell"
        )
        expect(page.locator(LINES)).to_have_count(4)  # a cross on each of the two others
    crosses = [box for box in (one.bounding_box() for one in page.locator(LINES).all()) if box is not None]
    for other in (maps.nth(0).bounding_box(), maps.nth(2).bounding_box()):
        across = [box for box in crosses if box["height"] == 1 and abs(box["x"] - other["x"]) < 1]
        down = [box for box in crosses if box["width"] == 1 and other["x"] <= box["x"] <= other["x"] + other["width"]]
        assert [round((box["y"] - other["y"]) / other["height"] * 512) for box in across] == [pytest.approx(300, abs=2)]
        assert [round((box["x"] - other["x"]) / other["width"] * 512) for box in down] == [pytest.approx(45, abs=2)]
    page.mouse.move(5, 5)
    expect(page.locator(LINES)).to_have_count(0)
    expect(line).to_contain_text("Point at a map")


def test_the_cursor_follows_the_keys_and_leaves_with_the_page(page: Page, address: str):
    line = compared(page, address, A, B, "causal")
    line.focus()
    for _ in range(3):
        page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowRight")
    expect(line).to_have_text(f"query row 12, key 4: A all, B all, C {has('causal', 12, 4)} of this cell")
    expect(page.locator(LINES)).to_have_count(6)
    page.get_by_role("link", name="Gallery").click()
    expect(page.locator(".ps-card").first).to_be_visible()
    expect(page.locator(LINES)).to_have_count(0)


def test_recall_against_density_or_cost(page: Page, address: str):
    compared(page, address, A, B, "causal & strided(9)")
    chart = page.locator(f"[class*=st-key-tradeoff]{FRESH} .js-plotly-plot")
    expect(chart.locator(".xtitle")).to_have_text("block density on the capture")
    expect(page.get_by_text("C: another pattern keeps no less for no more block density.")).to_be_visible()
    for name, title in (("cost", "forward pass of the problem"), ("token density", "token density of all pairs")):
        page.get_by_role("button", name=name, exact=True).or_(page.get_by_role("radio", name=name)).first.click()
        expect(chart.locator(".xtitle")).to_contain_text(title)
    expect(chart.locator(".scatterlayer .text text")).to_have_text(["A", "B", "C"])
