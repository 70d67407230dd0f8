"""Design in a real browser: by palette, by form, by paint, by keys; what the pointer is told; errors; two users."""

from __future__ import annotations

import re
from collections.abc import Callable
from urllib.parse import urlencode

import pytest
from pattern_studio_app import numbers
from pattern_studio_app.components.map_panel import HINTS
from pattern_studio_app.router import PAGES
from playwright.sync_api import BrowserContext, Page, expect

import pattern_studio as ps
from pattern_studio.metrics import layout_stats
from pattern_studio.plot.colours import DARK, LIGHT
from tests.app.visit import box, drag, drawn_map, figure, number, on_map, opened, rgb, settled

pytestmark = pytest.mark.browser

PRESET = "causal & (window(255, 0) | sink(4))"


def work(address: str, text: str, **more: object) -> str:
    return f"{address}/?{urlencode({'p': text, 'h': 1, **more})}"


def tool(page: Page, name: str) -> None:
    page.get_by_text(name, exact=True).click()
    expect(page.get_by_role("radio", name=name)).to_be_checked()
    expect(page.get_by_text(HINTS[name.lower()])).to_be_visible()  # the map has its new tool by the end of this run
    settled(page)


def test_a19_a_click_on_a_tile_of_ten_by_ten_writes_its_rectangle(page: Page, address: str):
    opened(page, work(address, "causal", q=80, bq=8, bk=8))
    tool(page, "Add")
    page.mouse.click(*on_map(page, 0.25, 0.55))  # row 2, key 5
    expect(box(page)).to_have_value("causal | rect(range(16, 24), range(40, 48))")
    expect(figure(page, "Full")).to_have_text("46")
    tool(page, "Remove")
    page.mouse.click(*on_map(page, 0.85, 0.15))  # row 8, key 1
    text = "(causal | rect(range(16, 24), range(40, 48))) & ~rect(range(64, 72), range(8, 16))"
    expect(box(page)).to_have_value(text)
    for expected in ("causal | rect(range(16, 24), range(40, 48))", "causal"):
        settled(page)
        page.get_by_role("button", name="undo icon").first.click()
        expect(box(page)).to_have_value(expected)
    settled(page)
    page.get_by_role("button", name="redo icon").first.click()
    expect(box(page)).to_have_value("causal | rect(range(16, 24), range(40, 48))")


def test_freehand_writes_blocks_that_grow(page: Page, address: str):
    opened(page, work(address, "causal", q=1024, bq=64, bk=64))
    tool(page, "Add")
    page.keyboard.down("Shift")
    corner = [on_map(page, (row + 0.5) / 16, (key + 0.5) / 16) for row, key in ((1, 8), (1, 11), (4, 11))]
    page.mouse.move(*corner[0])
    page.mouse.down()
    for place in corner[1:]:
        page.mouse.move(*place, steps=12)
    page.mouse.up()
    page.keyboard.up("Shift")
    drawn = "causal | blocks((64, 64), ((), (range(8, 12),), (11,), (11,), (11,)))"
    expect(box(page)).to_have_value(drawn)
    pairs = 1024 * 1025 // 2 + 7 * 64 * 64
    expect(figure(page, "Token, all")).to_have_text(f"{100 * pairs / 1024**2:.1f} %")


def test_the_map_is_painted_and_asked_by_keys_alone(page: Page, address: str):
    opened(page, work(address, PRESET, q=1024, bq=64, bk=64))
    tool(page, "Remove")
    drawn_map(page).focus()
    for _ in range(2):
        page.keyboard.press("ArrowLeft")
    told = page.locator(".live")
    expect(told).to_contain_text("query rows 512 to 575")
    expect(told).to_contain_text("keys 384 to 447")
    page.keyboard.press("Enter")
    expect(box(page)).to_have_value(f"{PRESET} & ~rect(range(512, 576), range(384, 448))")


def test_the_pointer_is_told_what_is_there_and_why(page: Page, address: str):
    opened(page, work(address, PRESET, q=1024, bq=64, bk=64))
    expect(drawn_map(page)).to_be_visible()
    for (row, key), words in {
        (12.5, 0.5): ("partial tile: 256 of 4,096 pairs", "query 800, key 32: neither window(255, 0) nor sink(4)"),
        (12.5, 10.5): ("full tile", "query 800, key 672: window(255, 0) keeps it"),
        (2.5, 9.5): ("empty tile", "query 160, key 608: causal forbids it"),
    }.items():
        page.mouse.move(*on_map(page, row / 16, key / 16))
        for part in words:
            expect(page.locator(".tip")).to_contain_text(part)
    tool(page, "Why")
    page.mouse.click(*on_map(page, 800.5 / 1024, 100.5 / 1024))
    expect(page.get_by_text("query row 800, key 100: not allowed")).to_be_visible()


def test_a_million_tokens_are_looked_at_down_to_single_ones(page: Page, address: str):
    opened(page, work(address, PRESET, q=1_048_576, bq=128, bk=128))
    expect(page.get_by_text("one cell = 2,048 x 2,048 tokens, mean of 256 tiles")).to_be_visible()
    page.mouse.move(*on_map(page, 0.5, 0.5))
    for _ in range(12):
        page.mouse.wheel(0, -900)
    expect(page.get_by_text("one cell = one pair")).to_be_visible()
    expect(drawn_map(page)).to_have_attribute("data-view", re.compile(r"^52\d{4},52\d{4},52\d{4},52\d{4}$"))
    page.mouse.move(*on_map(page, 0.5, 0.45))
    expect(page.locator(".tip")).to_contain_text(re.compile("(allowed|not allowed), in an? (full|partial|empty) tile"))
    drawn_map(page).press("0")
    expect(page.get_by_text("one cell = 2,048 x 2,048 tokens, mean of 256 tiles")).to_be_visible()


def test_zooming_by_box_and_back(page: Page, address: str):
    opened(page, work(address, PRESET, q=1024, bq=64, bk=64))
    drag(page, on_map(page, 0.25, 0.25), on_map(page, 0.5, 0.5))
    expect(drawn_map(page)).to_have_attribute("data-view", "256,512,256,512")
    settled(page)
    page.get_by_role("button", name="zoom_out_map icon").first.click()
    expect(drawn_map(page)).to_have_attribute("data-view", "0,1024,0,1024")


def test_the_palette_joins_words_and_opens_presets(page: Page, address: str):
    opened(page, work(address, "causal & window(63, 0)", q=1024, bq=64, bk=64))
    settled(page)
    page.get_by_role("button", name="Palette").click()
    page.get_by_role("button", name="strided", exact=True).click()
    expect(box(page)).to_have_value("causal & window(63, 0) | strided(64)")
    settled(page)
    page.get_by_text("in its place", exact=True).click()
    settled(page)
    page.get_by_role("button", name="Packed documents", exact=True).click()
    expect(box(page)).to_have_value("causal & docs")
    expect(page.locator("input[aria-label='Documents, tokens']:visible")).to_have_value("384, 192, 448")


def test_heads_and_layers_are_thumbnails_that_open(page: Page, address: str):
    text = "layers({range(0, 2): heads({0: window(31, 0), 1: dense}), 2: causal})"
    opened(page, work(address, text, q=512, bq=64, bk=64, h=2))
    expect(page.get_by_alt_text("Pattern of layer 0 to 1")).to_be_visible()
    expect(page.get_by_alt_text("Pattern of head 1")).to_be_visible()
    page.get_by_role("button", name="2", exact=True).click()
    expect(number(page, "Layer")).to_have_value("2")
    expect(page.get_by_alt_text("Pattern of head 1")).to_have_count(0)


@pytest.mark.parametrize(
    ("text", "more", "words"),
    [
        ("causal & windw(3, 0)", {}, "did you mean 'window'"),
        ("causal & window(-1, 0)", {}, "window"),
        ("causal & docs", {}, "docs needs the document lengths"),
        ("causal", {"q": "1e9"}, "expected a whole number from 1 to 1,048,576"),
        ("heads({0: causal})", {"h": 3}, "head 1 has no pattern"),
        ("~" * 9000 + "causal", {}, "nested too deeply"),
    ],
)
def test_each_error_is_one_clear_sentence_on_the_page(page: Page, address: str, text: str, more: dict, words: str):
    opened(page, work(address, text, **more))
    expect(page.get_by_text(words).first).to_be_visible()


def test_two_visitors_at_once_do_not_see_each_other(page: Page, address: str, launched: Callable[[], BrowserContext]):
    other = launched()
    one, two = opened(page, address), opened(other.new_page(), address)
    texts = {one: "causal & chunk(128)", two: "window(31, 31)"}
    for user, text in texts.items():
        box(user).fill(text)
    for user, text in texts.items():
        stats = layout_stats(ps.parse(text), ps.Problem(1024, heads=9), 64)
        expect(figure(user, "Token, all")).to_have_text(numbers.percent(stats.density.token))
        expect(box(user)).to_have_value(text)
    tool(one, "Add")
    expect(two.get_by_role("radio", name="Zoom")).to_be_checked()
    one.wait_for_url("**chunk**")
    opened(two, one.url)  # and a link takes one's work to the other
    expect(box(two)).to_have_value(texts[one])
    other.close()


def test_a_copied_link_opens_the_same_work_for_a_stranger(
    page: Page, address: str, launched: Callable[[], BrowserContext]
):
    opened(page, work(address, PRESET, q=4096, bq=128, bk=16))
    settled(page)
    page.get_by_role("button", name="Link").click()
    link = page.locator(".stCode:visible").first.inner_text().strip()
    stranger = launched()
    other = opened(stranger.new_page(), link)
    expect(box(other)).to_have_value(PRESET)
    expect(number(other, "Query rows, tokens")).to_have_value("4096")
    expect(figure(other, "Partial")).to_have_text(figure(page, "Partial").inner_text())
    stranger.close()


def test_the_theme_follows_the_browser(page: Page, address: str):
    page.emulate_media(color_scheme="dark")
    opened(page, address)
    expect(drawn_map(page)).to_be_visible()
    ground = "e => getComputedStyle(document.querySelector('.stApp')).backgroundColor"
    assert drawn_map(page).evaluate(ground) == "rgb(16, 23, 30)"
    corner = """e => { const [x, y, w, h] = e.dataset.place.split(',').map(Number), r = devicePixelRatio;
                return [...e.getContext('2d').getImageData((x + 0.99 * w) * r, (y + 0.02 * h) * r, 1, 1).data] }"""
    assert drawn_map(page).evaluate(corner)[:3] == [16, 23, 30]
    settled(page)
    expect(page.locator(".st-key-theme-watch")).to_have_count(0)  # the map watches: one component less to load
    page.emulate_media(color_scheme="light")  # all is drawn anew, without a click
    expect(page.locator(".stApp")).to_have_css("background-color", "rgb(255, 255, 255)")
    page.wait_for_function(f"e => ({corner})(e)[0] == 255", arg=drawn_map(page).element_handle())
    page.get_by_role("link", name="Quality", exact=True).click()
    paper = page.get_by_role("figure", name="Recall of every query row").locator(".main-svg").first
    expect(paper).to_have_css("background-color", "rgb(255, 255, 255)")
    settled(page)
    page.emulate_media(color_scheme="dark")
    expect(paper).to_have_css("background-color", "rgb(16, 23, 30)")
    expect(page.get_by_text("Rows that lose most")).to_have_css("color", "rgb(154, 169, 183)")


def test_the_theme_is_followed_where_design_has_no_map(page: Page, address: str):
    page.goto(work(address, "causal & docs", q=1024, docs="512, 256"))
    wrong = page.locator(".ps-wrong")
    expect(wrong).to_contain_text("1024")
    expect(page.locator("canvas")).to_have_count(0)
    settled(page)
    expect(wrong).to_have_css("color", rgb(LIGHT.wrong))
    page.emulate_media(color_scheme="dark")  # drawn anew, without a click
    expect(wrong).to_have_css("color", rgb(DARK.wrong))
    page.emulate_media(color_scheme="light")
    expect(wrong).to_have_css("color", rgb(LIGHT.wrong))


@pytest.mark.parametrize("path", [path for _, _, path, _ in PAGES[1:]])
def test_the_theme_is_followed_on_every_other_page(page: Page, address: str, path: str):
    page.goto(f"{address}/{path}")
    settled(page)
    words = page.locator(".ps-note, .ps-status, .ps-about").first
    expect(words).to_have_css("color", rgb(LIGHT.quiet))
    expect(page.locator(".st-key-theme-watch [data-watched]")).to_be_attached()  # its script comes after the page
    page.emulate_media(color_scheme="dark")
    expect(words).to_have_css("color", rgb(DARK.quiet))


def test_a_drag_goes_by_the_tool_it_began_with(page: Page, address: str):
    opened(page, work(address, "causal", q=1024, bq=64, bk=64))
    settled(page)
    page.mouse.move(*on_map(page, 0.25, 0.25))
    page.mouse.down()
    page.mouse.move(*on_map(page, 0.4, 0.4), steps=4)
    page.get_by_text("Add", exact=True).dispatch_event("click")
    expect(page.get_by_text(HINTS["add"])).to_be_visible()
    settled(page)
    page.mouse.move(*on_map(page, 0.5, 0.5), steps=4)
    page.mouse.up()
    expect(drawn_map(page)).to_have_attribute("data-view", "256,512,256,512")  # Zoom, nothing was added
    expect(box(page)).to_have_value("causal")
