"""Pictures: what is drawn where, in which colour, and that every format says the same."""

from __future__ import annotations

import io
import sys
from xml.etree import ElementTree

import numpy as np
import pytest
from PIL import Image

import pattern_studio as ps
from pattern_studio import StudioError
from pattern_studio.plot import Viewport, density_map, draw, thumbnail, tile_map, write
from pattern_studio.plot.colours import BACKGROUND, FULL, MASKED, PARTIAL, ramp, rgb
from pattern_studio.plot.picture import LEFT, TOP, picture
from pattern_studio.plot.png import SCALE, png
from pattern_studio.plot.shade import FULL_CODE, caption, legend, palette, shades
from pattern_studio.plot.svg import svg
from pattern_studio.plot.ticks import label, ticks

LAYOUT = ps.lower(ps.parse("causal & (window(127, 0) | sink(4))"), q_len=512, block=64)


def colours_at(layout: ps.BlockLayout, *places: tuple[int, int]) -> list[tuple[int, int, int]]:
    """Colours of the PNG's pixels at (query row, key)."""
    pic = picture(layout, max_cells=512)
    image = Image.open(io.BytesIO(png(pic))).convert("RGB")
    pixel = pic.pixels[0] / layout.problem.q_len * SCALE
    at = [(SCALE * LEFT + int((key + 0.5) * pixel), SCALE * TOP + int((row + 0.5) * pixel)) for row, key in places]
    return [image.getpixel(place) for place in at]


def test_png_has_the_right_colours_at_known_places():
    assert colours_at(LAYOUT, (200, 140), (200, 200), (200, 250), (200, 400), (400, 1), (400, 30)) == [
        rgb(FULL),  # a full tile of the band
        rgb(PARTIAL),  # the diagonal, allowed
        rgb(MASKED),  # above the diagonal, in an active tile
        rgb(BACKGROUND),  # an empty tile
        rgb(PARTIAL),  # a sink key
        rgb(MASKED),  # beside the sink, in its tile
    ]


def test_png_and_svg_agree_with_the_codes():
    pic = picture(LAYOUT)
    root = ElementTree.fromstring(svg(pic))
    drawn = {path.get("fill") for path in root.iter("{http://www.w3.org/2000/svg}path")}
    assert {FULL, PARTIAL, MASKED} <= drawn
    texts = [text.text for text in root.iter("{http://www.w3.org/2000/svg}text")]
    assert {"0", "512", "query row (token)", "full tile"} <= set(texts)


def test_svg_rectangles_cover_exactly_the_filled_cells():
    pic = picture(LAYOUT, max_cells=64)
    area = dict.fromkeys(range(1, FULL_CODE + 1), 0.0)
    colour_of = {"#{:02X}{:02X}{:02X}".format(*colour): code for code, colour in enumerate(pic.colours.tolist())}
    root = ElementTree.fromstring(svg(pic))
    for path in root.iter("{http://www.w3.org/2000/svg}path"):
        if path.get("fill") not in colour_of:
            continue
        for part in path.get("d").strip("Mz").split("zM"):
            corner, right, bottom = part.replace("V", "H").split("H")[:3]
            left, top = map(float, corner.split())
            area[colour_of[path.get("fill")]] += (float(right) - left) * (float(bottom) - top)
    cell = (pic.pixels[0] / 64) ** 2
    for code in area:
        assert area[code] / cell == pytest.approx((pic.codes == code).sum(), abs=1e-3)


def test_levels_of_detail_and_their_labels():
    whole = density_map(ps.lower(ps.causal, q_len=2**20, block=128))
    tiles = density_map(ps.lower(ps.causal, q_len=65536, block=128))
    tokens = density_map(LAYOUT, viewport=Viewport(128, 192, 128, 192))
    assert [cells.grid.level for cells in (whole, tiles, tokens)] == ["pooled", "tile", "tokens"]
    assert caption(whole) == "one cell = 2,048 x 2,048 tokens, mean of 256 tiles"
    assert caption(whole, "max") == "one cell = 2,048 x 2,048 tokens, max of 256 tiles"
    assert caption(tiles) == "one cell = 128 x 128 tokens, one tile"
    assert caption(tokens) == "one cell = one pair"
    assert legend(whole)[0] == (FULL, "every pair allowed")
    narrow = density_map(ps.lower(ps.parse("causal & (window(15, 0) | sink(128))"), q_len=2**20, block=128))
    assert set(np.unique(shades(narrow, "max"))) == {0, 100, FULL_CODE}
    with pytest.raises(StudioError, match="expected pool to be 'mean' or 'max', got 'sum'"):
        shades(whole, "sum")


def test_thin_bands_are_seen_among_a_million_tokens():
    cells = density_map(ps.lower(ps.parse("causal & window(15, 0)"), q_len=2**20, block=128))
    codes = shades(cells)
    assert (np.diag(codes) >= 1).all()
    assert np.abs(palette(cells)[1].astype(int) - rgb(BACKGROUND)).sum() > 60


def test_figure_axes_are_tokens_and_row_0_is_on_top():
    layout = ps.lower(ps.parse("causal & (window(512, 0) | sink(64))"), q_len=16384, block=128)
    figure = tile_map(layout)
    heatmap = figure.data[0]
    assert max(heatmap.z.shape) <= 512
    assert (heatmap.x[-1], heatmap.y[-1]) == (16384, 16384)
    assert figure.layout.yaxis.range == (16384, 0)
    assert figure.layout.xaxis.range == (0, 16384)
    assert "16K" in figure.layout.xaxis.ticktext
    assert heatmap.z[-1, 0] > 0  # the last row sees the sink, the first row no last key
    assert heatmap.z[0, -1] == 0


def test_hover_names_token_ranges_and_kind():
    figure = tile_map(LAYOUT)
    text = figure.data[-1].text
    assert text[0][7] == "query rows 0 to 63<br>keys 448 to 511<br>empty tile"
    assert text[2][1] == "query rows 128 to 191<br>keys 64 to 127<br>full tile"
    assert text[3][0] == "query rows 192 to 255<br>keys 0 to 63<br>partial tile<br>256 of 4,096 pairs allowed (6.25 %)"
    shifted = tile_map(ps.lower(ps.causal, q_len=8, kv_len=16, block=4), viewport=Viewport(2, 4, 0, 2))
    assert shifted.data[-1].text[0][1] == "query row 2 (position 10)<br>key 1<br>allowed, in a full tile"


def test_wide_problems_keep_a_readable_shape():
    figure = tile_map(ps.lower(ps.causal, q_len=1, kv_len=4096))
    assert figure.layout.yaxis.scaleanchor is None
    height, width = picture(ps.lower(ps.causal, q_len=1, kv_len=4096)).pixels
    assert height == width // 4


def test_write_chooses_by_suffix(tmp_path):
    for suffix, start in ((".png", b"\x89PNG"), (".svg", b"<svg"), (".html", b"<!doctype html>"), (".PNG", b"\x89PNG")):
        path = tmp_path / f"map{suffix}"
        write(LAYOUT, path)
        assert path.read_bytes().startswith(start)
    with pytest.raises(StudioError, match=r"ending in .png, .svg, .html, got '.jpg'"):
        write(LAYOUT, tmp_path / "map.jpg")
    with pytest.raises(StudioError, match="got no suffix"):
        write(LAYOUT, tmp_path / "map")
    with pytest.raises(StudioError, match="expected a writable path"):
        write(LAYOUT, tmp_path / "nowhere" / "map.png")


def test_html_needs_no_network(tmp_path):
    write(LAYOUT, tmp_path / "map.html")
    page = (tmp_path / "map.html").read_text()
    assert '<script src="http' not in page
    assert '<script charset="utf-8" src="http' not in page


def test_without_plotly_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "plotly.graph_objects", None)
    with pytest.raises(StudioError, match=r"pip install 'pattern-studio\[app\]'"):
        tile_map(LAYOUT)


def test_thumbnails_are_small_pictures():
    image = Image.open(io.BytesIO(thumbnail(LAYOUT, side=128))).convert("RGB")
    assert image.size == (128, 128)
    assert image.getpixel((127, 0)) == rgb(BACKGROUND)


def test_drawing_in_the_terminal():
    lines = draw(ps.causal, size=8, q_len=8).splitlines()
    assert [line.strip() for line in lines[1:5]] == ["0 █▒", "2 ███▒", "4 █████▒", "6 ███████▒"]
    assert lines[-1].strip().startswith("one character = 2 x 1 tokens")
    assert len(draw(ps.lower(ps.causal, q_len=10_000), size=64).splitlines()) <= 34
    with pytest.raises(StudioError, match="Pattern or a BlockLayout"):
        draw("causal")
    with pytest.raises(StudioError, match="size of a drawing"):
        draw(ps.causal, size=1)


def test_every_caption_can_be_written_in_a_png():
    for length, block, kv_len in ((12345, (64, 3), None), (2**20, 128, None), (50, 7, 3)):
        png(picture(ps.lower(ps.causal, q_len=length, kv_len=kv_len, block=block), max_cells=64))


def test_ticks_and_labels():
    assert ticks(0, 1) == [0, 1]
    assert all(len(ticks(0, length)) <= 9 for length in range(1, 3000, 7))
    assert [label(n) for n in (0, 1024, 10240, 10_001, 2**21)] == ["0", "1,024", "10K", "10,001", "2M"]


def test_ramps_get_darker_step_by_step():
    steps = ramp(20, MASKED, PARTIAL, FULL).astype(int) @ [2, 7, 1]  # about the eye's weights
    assert (np.diff(steps) < 0).all()
