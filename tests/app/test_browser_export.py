"""Export in a real browser: what is saved there is run as a user would run it, and compared with the reference."""

from __future__ import annotations

import io
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlencode

import numpy as np
import pytest
import torch
from pattern_studio_app import numbers
from playwright.sync_api import Page, expect

import pattern_studio as ps
from pattern_studio.exporters import read
from pattern_studio.metrics import layout_stats
from tests.app.visit import box, figure, opened, settled
from tests.exporters.flex import dense

pytestmark = pytest.mark.browser

TEXT = "heads({0: causal & (window(40, 0) | sink(4)), 1: causal & dilated(3, 0, rate=16)})"
# A user's own program, in a process of its own that knows nothing of us: the saved file and torch.
USE = """
import runpy, sys, warnings
import torch
from torch.nn.attention.flex_attention import flex_attention

warnings.filterwarnings("ignore", "flex_attention called without torch.compile")
mask = runpy.run_path("pattern.py")["block_mask"]("cpu")
q, k, v = torch.load("qkv.pt")
torch.save(flex_attention(q, k, v, block_mask=mask), "out.pt")
assert not any(name.startswith(("pattern_studio", "attention_core")) for name in sys.modules)
"""


def chosen(page: Page, target: str) -> None:
    page.locator("[data-testid=stRadioOption]").get_by_text(target, exact=True).click()
    expect(page.locator("[data-testid=stRadioOption]").filter(has_text=target).locator("input").first).to_be_checked()
    settled(page)


def saved(page: Page, folder: Path) -> Path:
    with page.expect_download() as download:
        page.get_by_role("button", name="Save the file").click()
    path = folder / download.value.suggested_filename
    download.value.save_as(path)
    return path


def test_the_code_that_is_saved_runs_and_attends_as_the_reference(page: Page, address: str, tmp_path: Path):
    opened(page, f"{address}/export?{urlencode({'p': TEXT, 'q': 200, 'h': 2, 'bq': 16, 'bk': 32})}")
    expect(page.locator("[data-proof=run]")).to_be_visible()
    expect(page.get_by_text("Fits as it is.")).to_be_visible()
    settled(page)
    assert saved(page, tmp_path).name == "pattern.py"
    made = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(1, 2, 200, 16, dtype=torch.float64, generator=made) for _ in range(3))
    torch.save([q, k, v], tmp_path / "qkv.pt")
    done = subprocess.run([sys.executable, "-c", USE], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    wanted, _ = dense(q, k, v, ps.dense_mask(ps.parse(TEXT), ps.Problem(200, heads=2)))
    torch.testing.assert_close(torch.load(tmp_path / "out.pt"), wanted, rtol=0, atol=1e-12)


def test_the_doctor_makes_it_fit_and_the_file_is_exact(page: Page, address: str, tmp_path: Path):
    opened(page, f"{address}/export?{urlencode({'p': 'chunk(64)', 'q': 192, 'h': 2, 'bq': 48, 'bk': 48})}")
    expect(page.get_by_text("Fits as it is.")).to_be_visible()  # what it begins with
    settled(page)
    chosen(page, "deepspeed")
    expect(page.get_by_text("lower it at block 64 x 64")).to_be_visible()
    assert page.get_by_role("button", name="Save the file").count() == 0
    page.get_by_role("button", name="Change it so").click()
    expect(page.get_by_text("Fits as it is.")).to_be_visible()
    page.wait_for_url("**bq=64**")
    settled(page)
    path = saved(page, tmp_path)
    with np.load(io.BytesIO(path.read_bytes()), allow_pickle=False) as file:
        np.testing.assert_array_equal(file["layout"], np.broadcast_to(np.eye(3, dtype=np.int64), (2, 3, 3)))
    np.testing.assert_array_equal(
        ps.dense_mask(read(path), ps.Problem(192, heads=2)), ps.dense_mask(ps.chunk(64), ps.Problem(192, heads=2))
    )
    page.get_by_role("button", name="undo icon").first.click()
    page.wait_for_url("**bq=48**")


def test_what_is_refused_is_written_only_when_asked_for(page: Page, address: str, tmp_path: Path):
    opened(page, f"{address}/export?{urlencode({'p': 'causal', 'q': 32, 'h': 1, 'bq': 16, 'bk': 16})}")
    expect(page.get_by_text("Fits as it is.")).to_be_visible()
    settled(page)
    chosen(page, "deepspeed")
    expect(page.get_by_text("let queries see later keys")).to_be_visible()  # A18
    page.get_by_text("Write it all the same").click()
    expect(page.get_by_text("cover(+240)")).to_be_visible()
    settled(page)
    with np.load(saved(page, tmp_path), allow_pickle=False) as file:
        assert file["layout"].sum() * 16 * 16 == 768


def test_every_preset_can_be_looked_up(page: Page, address: str):
    opened(page, f"{address}/export")
    expect(page.get_by_text("Fits as it is.")).to_be_visible()
    settled(page)
    page.get_by_role("tab", name="Every preset").click()
    rows = page.locator(".ps-matrix tbody tr")
    expect(rows.filter(has_text="mistral")).to_be_visible()
    page.get_by_label("Preset", exact=True).fill("deepspeed")
    page.get_by_label("Preset", exact=True).press("Enter")
    expect(rows).to_have_count(3)
    expect(box(page)).to_be_visible()
    assert page.locator(".stMain").evaluate("e => e.scrollWidth - e.clientWidth") == 0


def test_a_pattern_of_the_gallery_opens_in_design(page: Page, address: str):
    page.goto(f"{address}/gallery")
    expect(page.get_by_role("img", name="Tile map of StreamingLLM")).to_be_visible()
    page.get_by_text("Heads, layers, documents").click()
    expect(page.locator(".ps-card")).to_have_count(4)
    settled(page)
    card = page.locator("[class*=st-key-card-packed_documents]")
    expect(card.get_by_role("link", name="arXiv:2107.02027")).to_have_attribute(
        "href", "https://arxiv.org/abs/2107.02027"
    )
    card.get_by_role("button", name="Open in Design").click()
    expect(box(page)).to_have_value("causal & docs")
    page.wait_for_url("**docs=192**")
    stats = layout_stats(ps.parse("causal & docs"), ps.Problem(512, docs=(192, 96, 40, 184)), 32)
    expect(figure(page, "Block")).to_have_text(numbers.percent(stats.density.block))
