"""Golden pictures: what is kept in gallery/pictures is what is drawn today, and the drawing is the pattern."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET

import numpy as np
import pytest

import pattern_studio as ps
from gallery.build import PICTURES
from gallery.named import gallery
from gallery.picture import LEVELS, cells_of, levels, svg

NAMED = gallery()
SVG = "{http://www.w3.org/2000/svg}"


@pytest.mark.parametrize("one", NAMED, ids=lambda one: one.name)
def test_kept_picture_is_todays(one):
    assert (PICTURES / f"{one.name}.svg").read_text() == svg(one), "run `make gallery` and look at the change"


def test_no_picture_is_left_over_and_all_are_small():
    kept = {path.name: path.stat().st_size for path in PICTURES.iterdir()}
    assert set(kept) == {f"{one.name}.svg" for one in NAMED}
    assert sum(kept.values()) < 1_500_000


@pytest.mark.parametrize("one", NAMED, ids=lambda one: one.name)
def test_drawn_cells_are_the_predicates_pairs(one):
    """From the paths of the file back to cells, against the dense oracle."""
    mask = ps.dense_mask(one.pattern, one.problem, block=one.block, layer=one.layer)[one.head]
    size = len(mask) // 128 or 1
    share = mask.reshape(len(mask) // size, size, -1, size).mean((1, 3))
    tile = mask.reshape(len(mask) // one.block, one.block, -1, one.block)
    full, active = (
        kind.repeat(one.block // size, 0).repeat(one.block // size, 1) for kind in (tile.all((1, 3)), tile.any((1, 3)))
    )
    drawn = painted((PICTURES / f"{one.name}.svg").read_text())
    np.testing.assert_array_equal(drawn["full"], full)
    np.testing.assert_array_equal(drawn["reach"], active & ~full)
    np.testing.assert_array_equal(drawn["part"], (share > 0) & ~full)


def test_shades_rise_with_the_share_of_allowed_pairs():
    for one in NAMED:
        cells = cells_of(one)
        _, above = levels(cells)
        partial = cells.full == 0
        share = (cells.pairs / cells.grid.area)[partial]
        order = np.argsort(share, kind="stable")
        assert (np.diff(above[partial][order].astype(int)) >= 0).all()
        assert (above[partial] == LEVELS).sum() >= (share == 1).sum()


def painted(text: str) -> dict[str, np.ndarray]:
    """The cells that each class of the picture paints, bool; no cell is painted twice within a class."""
    root = ET.fromstring(text)
    wide, tall = (int(n) for n in root.attrib["viewBox"].split()[2:])
    out = {name: np.zeros((tall, wide), int) for name in ("reach", "part", "full")}
    for path in root.iter(f"{SVG}path"):
        for x, y, w, h, back in re.findall(r"M(\d+) (\d+)h(\d+)v(\d+)h-(\d+)z", path.attrib["d"]):
            assert w == back
            if path.attrib["class"] in out:
                out[path.attrib["class"]][int(y) : int(y) + int(h), int(x) : int(x) + int(w)] += 1
    assert all(cells.max() <= 1 for cells in out.values())
    return {name: cells > 0 for name, cells in out.items()}


@pytest.mark.parametrize("one", NAMED, ids=lambda one: one.name)
def test_pictures_have_words(one):
    title = ET.fromstring(svg(one)).find(f"{SVG}title")
    assert title is not None
    assert title.text is not None
    assert one.title in title.text
    assert "% of all pairs are allowed" in title.text
