"""Uploads and fits in a real browser: a capture's worst row, hostile files, a fit taken to Design."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

import pattern_studio as ps
from pattern_studio.learned import fit_blocks
from pattern_studio.metrics import analyze

from . import hostile
from .toy import saved, toy
from .visit import box, opened, settled

pytestmark = pytest.mark.browser

RAN = Path(tempfile.gettempdir()) / "pattern-studio-browser-ran"
TEXT = "causal & window(9, 0)"
LINK = "p=causal+%26+window(9,+0)&q=96&h=4&bq=16&bk=16"


def upload(page: Page, button: str, name: str, data: bytes) -> None:
    """Give a file to the uploader behind a button, whose menu is opened where it is closed."""
    settled(page)
    field = page.locator("input[type=file]")
    if not field.count():
        page.get_by_role("button", name=button).click()
    expect(field).to_have_count(1)
    field.set_input_files(files=[{"name": name, "mimeType": "application/octet-stream", "buffer": data}])


def alert(page: Page):
    return page.locator(".ps-wrong[role=alert]:visible")


def test_the_worst_row_of_an_uploaded_capture_with_its_words(page: Page, address: str, tmp_path: Path):
    opened(page, f"{address}/quality?{LINK}")
    upload(page, "Capture", "toy.safetensors", saved(toy(), tmp_path / "toy.safetensors"))
    expect(page.get_by_text("toy 0, CC0, 96 tokens, layers 3 and 5").first).to_be_attached()
    report = analyze(ps.parse(TEXT), toy(), block=16, metrics=("recall",))
    worst = report.layers[0].heads[0].figures["worst_rows"][0]
    first = page.locator(".ps-rows tr").nth(1)
    expect(first.locator("td").first).to_have_text(str(worst.row))
    expect(first.locator("mark")).to_have_text(f"word{worst.row}")
    expect(box(page)).to_have_value(TEXT)


def test_hostile_files_get_one_sentence_and_the_pattern_stays(page: Page, address: str):
    opened(page, f"{address}/quality?{LINK}")
    for name, (data, words) in hostile.captures(RAN).items():
        upload(page, "Capture", name, data)
        expect(alert(page)).to_have_text(re.compile(f"^{re.escape(name)}: .*{re.escape(words)}"))
        expect(box(page)).to_have_value(TEXT)
    page.goto(f"{address}/?{LINK}")
    for name, (data, words) in hostile.patterns(RAN).items():
        upload(page, "Open a file", name, data)
        expect(alert(page)).to_have_text(re.compile(f"^{re.escape(name)}: .*{re.escape(words)}"))
        expect(box(page)).to_have_value(TEXT)
    assert not RAN.exists()


def test_a_fit_is_taken_to_design_and_undone(page: Page, address: str, tmp_path: Path):
    opened(page, f"{address}/fit?{LINK}")
    upload(page, "Capture", "toy.npz", saved(toy(), tmp_path / "toy.npz"))
    expect(page.get_by_text("toy 0, CC0, 96 tokens, layers 3 and 5").first).to_be_attached()
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Fit", exact=True).click()
    expect(page.get_by_text("Fitted on rows 0 to 95 of made up 0, CC0")).to_be_visible()
    expect(page.get_by_text("hardly transfer")).to_be_visible()
    settled(page)
    page.get_by_role("button", name="Open in Design").click()
    page.wait_for_url(re.compile(r"/(design)?\?"))
    expected = fit_blocks(toy(), 0.25, (64, 16)).pattern
    expect(box(page)).to_have_value(str(expected))
    settled(page)
    page.get_by_role("button", name="undo icon").first.click()
    expect(box(page)).to_have_value(TEXT)


def test_a_file_above_the_limit_is_refused_before_it_is_sent(page: Page, address: str):
    opened(page, f"{address}/quality?{LINK}")
    large = Path(tempfile.mkdtemp()) / "large.npz"
    try:
        with large.open("wb") as stream:
            stream.truncate((64 << 20) + 1)
        settled(page)
        page.get_by_role("button", name="Capture").click()
        field = page.locator("input[type=file]")
        expect(field).to_have_count(1)
        field.set_input_files(large)
        expect(page.get_by_text("64.0MB or smaller")).to_be_visible()
        expect(box(page)).to_have_value(TEXT)
    finally:
        large.unlink()
        large.parent.rmdir()
