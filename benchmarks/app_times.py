"""How soon the app shows something: first paint, and a change of pattern, measured inside a real browser.

    python -m benchmarks.app_times --out benchmarks/results/app.json

Every time is taken by the page itself, from the moment of the click, key or navigation to the frame in which the
new thing stands in the page. `first_paint`: from the navigation to the tile map; `answer` is when the page's first byte
came, which a browser that has just started makes wait until it has. `change`: a number of the form,
from the Enter key to the new map; `typed` is the same by text, which is read 150 ms after the last letter.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from importlib.metadata import version
from pathlib import Path
from urllib.parse import urlencode

from playwright.sync_api import Page, expect

from .served import chromium, served
from .where import cpu

TEXT = "causal & (window(255, 0) | sink(4))"
AIMS = {"first_paint": 2.0, "change_4k": 0.5, "change_1m": 2.0}  # seconds, on two cores that nothing else uses
LENGTHS = {"4k": (4096, 64), "1m": (1_048_576, 128)}  # tokens and block

# The map's canvas stands in its component's own shadow tree, which document.querySelector does not enter.
FIND = """const find = (selector) => document.querySelector(selector) ?? [...document.querySelectorAll('.stMain *')]
    .map((element) => element.shadowRoot?.querySelector(selector)).find(Boolean);"""
# When each thing first stood in the page, in milliseconds since the navigation.
FIRST = (
    """(() => {
  """
    + FIND
    + """
  const first = window.psFirst = {}, looked_for = {
    text: '[aria-label=Pattern]', figures: '[data-testid=stMetricValue]', map: 'canvas[data-drawn]',
    quality: '.st-key-quality [data-testid=stMetricValue]' };  // a value that is waited for is told as …
  const look = () => { for (const [name, selector] of Object.entries(looked_for))
    if (!(name in first) && (find(selector)?.innerText ?? '…') !== '…') first[name] = performance.now();
    requestAnimationFrame(look); };
  look();
})()"""
)
# From Enter (or the last letter) to the first frame with another map and other figures than before.
CHANGE = (
    """() => {
  """
    + FIND
    + """
  const shown = () => ({ map: find('canvas[data-drawn]')?.dataset.drawn,
    figures: [...document.querySelectorAll('[data-testid=stMetricValue]')].slice(0, 3).map(e => e.innerText).join() });
  const before = shown(), change = window.psChange = {};
  let begin = null;
  document.addEventListener('input', () => { begin = performance.now(); }, true);
  document.addEventListener('keydown', e => { if (e.key === 'Enter') begin = performance.now(); }, true);
  const look = () => { const now = shown();
    for (const name of ['map', 'figures'])
      if (!(name in change) && begin !== null && now[name] && now[name] !== before[name])
        change[name] = performance.now() - begin;
    if (Object.keys(change).length < 2) requestAnimationFrame(look); };
  look();
}"""
)


def first_paint(page: Page, address: str) -> dict[str, float]:
    """Seconds from the navigation to each part of Design, for a page that has not been used."""
    page.add_init_script(FIRST)
    page.goto(address)
    page.wait_for_function("window.psFirst && window.psFirst.map && window.psFirst.quality")
    answer = "performance.getEntriesByType('navigation')[0].responseStart"
    return {name: at / 1000 for name, at in page.evaluate(f"({{...window.psFirst, answer: {answer}}})").items()}


def change(page: Page, act: Callable[[], None]) -> dict[str, float]:
    """Seconds from what `act` does to the new map and the new figures."""
    settled(page)
    page.evaluate(CHANGE)
    act()
    page.wait_for_function("window.psChange.map && window.psChange.figures")
    return {name: at / 1000 for name, at in page.evaluate("window.psChange").items()}


def settled(page: Page) -> None:
    """Wait until the page is drawn to its end, measured quality included."""
    expect(page.locator(".stApp")).to_have_attribute("data-test-script-state", "notRunning", timeout=60_000)


def changes(page: Page, address: str, q_len: int, block: int, repeats: int) -> dict[str, list[dict[str, float]]]:
    """Both ways of changing a pattern on one problem: patterns that nobody asked for before, so nothing is cached."""
    query = urlencode({"p": TEXT, "q": q_len, "h": 9, "bq": block, "bk": block})
    page.goto(f"{address}/?{query}")
    page.wait_for_selector("canvas[data-drawn]")
    found: dict[str, list[dict[str, float]]] = {"form": [], "typed": []}
    for n in range(repeats):
        sink = page.locator("input[aria-label='Sink keys']:visible")
        wide = q_len // 64 * (n + 1)  # wide enough to be seen at any zoom
        sink.fill(str(wide))
        found["form"].append(change(page, partial(sink.press, "Enter")))
        box = page.locator("[aria-label=Pattern]:visible")
        text = f"causal & (window({q_len // 16 * (n + 1)}, 0) | sink({wide}))"
        found["typed"].append(change(page, partial(box.fill, text)))
    return found


def measure(repeats: int) -> dict:
    """All times as rows, each the median of `repeats` with the single ones beside it."""
    fresh, warm, boot, load = [], [], [], [os.getloadavg()[0]]
    found: dict[str, dict[str, list]] = {}
    for n in range(repeats):
        with tempfile.TemporaryDirectory() as folder:
            root, begin = Path(folder), time.monotonic()
            with served(root) as address, chromium(root / "profile") as browser:
                boot.append(time.monotonic() - begin)
                fresh.append(first_paint(browser.new_page(), address))
                warm.append(first_paint(browser.new_page(), address))
                if n == repeats - 1:
                    for name, (q_len, block) in LENGTHS.items():
                        found[name] = changes(browser.new_page(), address, q_len, block, repeats)
        load.append(os.getloadavg()[0])
    rows = _rows("first paint, fresh server and browser", fresh, AIMS["first_paint"])
    rows += _rows("first paint, second visit", warm, AIMS["first_paint"])
    for name, ways in found.items():
        for how, runs in ways.items():
            rows += _rows(f"change {name} {how}", runs, AIMS[f"change_{name}"])
    return {"machine": machine(load), "server_ready_s": [round(one, 3) for one in boot], "rows": rows}


def machine(load: list[float]) -> dict:
    """What it ran on; `load`: of the whole machine, before and after each repeat: other work makes times longer.

    Run under `chrt -r 1` other work waits, as far as the caches and memory allow; the result says so.
    """
    return {
        "cpu": cpu(),
        "cores": os.cpu_count(),
        "load": load,
        "scheduling": "real time" if os.sched_getscheduler(0) else "as any other work",
        "python": platform.python_version(),
        **{name: version(name) for name in ("streamlit", "plotly", "torch", "numpy")},
        "date": datetime.date.today().isoformat(),
    }


def _rows(what: str, runs: list[dict[str, float]], aim: float) -> list[dict]:
    """A row for each part: the median and all times in seconds; the aim is for the part "map"."""
    rows = []
    for part in sorted({name for run in runs for name in run}):
        seconds = [run[part] for run in runs if part in run]
        median, each = round(statistics.median(seconds), 3), [round(one, 3) for one in seconds]
        rows.append({"what": what, "part": part, "median_s": median, "all_s": each})
        if part == "map":
            rows[-1]["aim_s"] = aim
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--out", type=Path, help="write the JSON here")
    chosen = parser.parse_args()
    text = json.dumps(measure(chosen.repeats), indent=1)
    print(text)
    if chosen.out:
        chosen.out.write_text(text + "\n")


if __name__ == "__main__":
    main()
