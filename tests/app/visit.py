"""What the tests in a browser do and look for on every page."""

from __future__ import annotations

from playwright.sync_api import Locator, Page, expect


def opened(page: Page, address: str) -> Page:
    page.goto(address)
    expect(box(page)).to_be_visible()
    return page


def settled(page: Page) -> None:
    """Wait until the page has been drawn to its end: a click on what is being replaced reaches nothing."""
    expect(page.locator(".stApp")).to_have_attribute("data-test-script-state", "notRunning")


def box(page: Page) -> Locator:
    return page.locator("[aria-label=Pattern]:visible")


def number(page: Page, label: str) -> Locator:
    return page.locator(f"input[aria-label='{label}']:visible")


def figure(page: Page, label: str) -> Locator:
    metric = page.locator("[data-testid=stMetric]").filter(has=page.get_by_text(label, exact=True))
    return metric.locator("[data-testid=stMetricValue]")
