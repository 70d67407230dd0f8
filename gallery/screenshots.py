"""Every page of the app at 1280 x 800, light and dark, as PNG.

    python -m gallery.screenshots

Looked at by eye after every change of the app's face; README shows some of them.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from urllib.parse import urlencode

from pattern_studio_app.router import PAGES
from playwright.sync_api import Page, expect

from benchmarks.served import chromium, served

FOLDER = Path(__file__).parent / "screenshots"
# What makes a page worth a look: the parameters of its address.
SHOWN = {
    "compare": {"p": "causal & (window(255, 0) | sink(4))", "vs1": "causal & window(255, 0)"},
    "reach": {"p": "causal & (window(255, 0) | sink(4))", "q": 8192, "bq": 64},
    "performance": {"p": "causal & (window(1023, 0) | sink(4))", "q": 32768, "h": 16, "bq": 128, "bk": 128},
}
MINUTE = 60_000  # milliseconds, the most for measuring on a page


def shoot(page: Page, address: str, path: str, out: Path) -> None:
    """One page as it stands once everything on it is measured and drawn."""
    query = urlencode(SHOWN.get(path, {}))
    place = "" if path == PAGES[0][2] else path  # the first page has the bare address
    page.goto(f"{address}/{place}{f'?{query}' if query else ''}")
    expect(page.locator(".stMain .stElementContainer").first).to_be_visible(timeout=MINUTE)
    expect(page.locator(".stApp")).to_have_attribute("data-test-script-state", "notRunning", timeout=3 * MINUTE)
    expect(page.get_by_test_id("stSkeleton")).to_have_count(0, timeout=MINUTE)
    if path == "fit":
        page.get_by_role("button", name="Fit", exact=True).click()
        expect(page.get_by_role("button", name="Stop", exact=True)).to_be_visible(timeout=MINUTE)
        expect(page.locator(".stApp")).to_have_attribute("data-test-script-state", "notRunning", timeout=5 * MINUTE)
    page.wait_for_timeout(1500)  # figures are drawn in the browser after the last word of the server
    page.screenshot(path=out)


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=FOLDER)
    parser.add_argument("--pages", nargs="*", default=[path for _, _, path, _ in PAGES])
    chosen = parser.parse_args(argv)
    chosen.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, served(Path(folder)) as address:
        for scheme in ("light", "dark"):
            with chromium(Path(folder) / scheme, scheme=scheme) as browser:
                page = browser.new_page()
                for path in chosen.pages:
                    shoot(page, address, path, chosen.out / f"{path}-{scheme}.png")


if __name__ == "__main__":
    main()
