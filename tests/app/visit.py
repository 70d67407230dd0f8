"""What the tests in a browser do and look for on every page."""

from __future__ import annotations

from playwright.sync_api import Locator, Page, expect


def opened(page: Page, address: str) -> Page:
    page.goto(address)
    expect(box(page)).to_be_visible()
    return page


# While a page is drawn anew, Streamlit keeps what the last run drew beside its successor, marked as stale.
FRESH = "[data-stale=false]"


def settled(page: Page) -> None:
    """Wait until the page has been drawn to its end: a click on what is being replaced reaches nothing."""
    expect(page.locator(".stApp")).to_have_attribute("data-test-script-state", "notRunning")


def box(page: Page) -> Locator:
    return page.locator("[aria-label=Pattern]:visible")


def number(page: Page, label: str) -> Locator:
    return page.locator(f"input[aria-label='{label}']:visible")


def figure(page: Page, label: str) -> Locator:
    metric = page.locator(f"{FRESH} [data-testid=stMetric]").filter(has=page.get_by_text(label, exact=True))
    return metric.locator("[data-testid=stMetricValue]")


def drawn_map(page: Page) -> Locator:
    """The tile map of Design, once its picture stands."""
    return page.locator("canvas[data-drawn]")


def on_map(page: Page, row: float, key: float) -> tuple[float, float]:
    """Where on the screen a share, 0 to 1, of the rows and keys in view lies."""
    expect(drawn_map(page)).to_be_visible()
    canvas = drawn_map(page).bounding_box()
    x, y, wide, tall = map(float, drawn_map(page).get_attribute("data-place").split(","))
    return canvas["x"] + x + key * wide, canvas["y"] + y + row * tall


def drag(page: Page, begin: tuple[float, float], end: tuple[float, float]) -> None:
    page.mouse.move(*begin)
    page.mouse.down()
    page.mouse.move((begin[0] + end[0]) / 2, (begin[1] + end[1]) / 2, steps=4)
    page.mouse.move(*end, steps=4)
    page.mouse.up()


def rgb(colour: str) -> str:
    """A colour of the palette as the browser tells it.

    >>> rgb("#FF8000")
    'rgb(255, 128, 0)'
    """
    return f"rgb({', '.join(str(int(colour[at : at + 2], 16)) for at in (1, 3, 5))})"
