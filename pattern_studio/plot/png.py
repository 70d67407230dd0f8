"""A layout as PNG, written with zlib alone: no browser, no imaging library, no fonts."""

from __future__ import annotations

import struct
import zlib

import numpy as np
from numpy.typing import NDArray

from ..layout import BlockLayout
from .colours import BACKGROUND, INK, LIGHT, LINE, QUIET, Colours, rgb
from .density import density_map
from .glyphs import HEIGHT, SPACING, text_mask
from .grid import Axis
from .picture import LEFT, TOP, Picture
from .shade import palette, shades
from .ticks import label, ticks

Image = NDArray[np.uint8]

SCALE = 2  # pixels per unit of the picture, so that it stays sharp on dense screens


def png(picture: Picture) -> bytes:
    """The whole picture as an 8-bit RGB PNG: cells, axes in tokens, caption and legend.

    >>> import pattern_studio as ps
    >>> from pattern_studio.plot.picture import picture
    >>> png(picture(ps.lower(ps.causal, q_len=256, block=64)))[:4]
    b'\\x89PNG'
    """
    return encode(image(picture))


def image(picture: Picture) -> Image:
    """The picture as uint8 [height, width, 3]; its map begins at pixel (SCALE * TOP, SCALE * LEFT)."""
    canvas = _Canvas(*picture.size)
    tall, wide = picture.pixels
    canvas.box(TOP - 1, LEFT - 1, tall + 2, wide + 2, LINE)
    canvas.pixels[SCALE * TOP : SCALE * (TOP + tall), SCALE * LEFT : SCALE * (LEFT + wide)] = _map(picture)
    _axes(canvas, picture)
    _legend(canvas, picture)
    return canvas.pixels


def thumbnail(layout: BlockLayout, head: int = 0, side: int = 128, colours: Colours = LIGHT) -> bytes:
    """One head as a small PNG without axes, `side` pixels along its longer side at most.

    >>> import pattern_studio as ps
    >>> len(thumbnail(ps.lower(ps.causal, q_len=4096))) < 2000
    True
    """
    cells = density_map(layout, head, max_cells=side)
    pixels = palette(cells, colours=colours)[shades(cells)]
    repeat = max(1, side // max(pixels.shape[:2]))
    return encode(pixels.repeat(repeat, 0).repeat(repeat, 1))


def encode(pixels: Image) -> bytes:
    """PNG bytes of an RGB image, uint8 [height, width, 3]."""
    height, width, _ = pixels.shape
    raw = np.zeros((height, 1 + width * 3), np.uint8)  # every line begins with its filter, 0: none
    raw[:, 1:] = pixels.reshape(height, -1)

    def chunk(name: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)  # 8 bits, RGB, no interlace
    body = chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(raw.tobytes(), 9)) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + body


class _Canvas:
    """Draws in units of the picture on a background, SCALE pixels each; what lies outside is cut."""

    def __init__(self, height: int, width: int) -> None:
        self.pixels = np.empty((SCALE * height, SCALE * width, 3), np.uint8)
        self.pixels[:] = rgb(BACKGROUND)

    def box(self, y: int, x: int, height: int, width: int, colour: str) -> None:
        self.pixels[SCALE * y : SCALE * (y + height), SCALE * x : SCALE * (x + width)] = rgb(colour)

    def ink(self, y: int, x: int, mask: NDArray[np.bool_], colour: str) -> None:
        where = self.pixels[SCALE * y :, SCALE * x :]
        mask = mask.repeat(SCALE, 0).repeat(SCALE, 1)[: where.shape[0], : where.shape[1]]
        where[: mask.shape[0], : mask.shape[1]][mask] = rgb(colour)

    def text(self, y: int, x: int, text: str, colour: str, anchor: str = "start") -> None:
        """Text whose top is at y; x is its start, middle or end."""
        mask = text_mask(text)
        x -= {"start": 0, "middle": mask.shape[1] // 2, "end": mask.shape[1]}[anchor]
        self.ink(y, max(x, 0), mask, colour)


def _map(picture: Picture) -> Image:
    """Every pixel shows the cell under its middle."""
    grid, (tall, wide) = picture.cells.grid, picture.pixels

    def cell(axis: Axis, size: int) -> NDArray[np.int64]:
        return ((np.arange(size) + 0.5) / size * (axis.stop - axis.start) // axis.size).astype(np.int64)

    codes = picture.codes[cell(grid.rows, SCALE * tall)[:, None], cell(grid.keys, SCALE * wide)]
    return picture.colours[codes]


def _axes(canvas: _Canvas, picture: Picture) -> None:
    tall, wide = picture.pixels
    rows, keys = picture.cells.grid.rows, picture.cells.grid.keys
    for at in ticks(keys.start, keys.stop):
        x = LEFT + round(picture.at("keys", at))
        canvas.box(TOP + tall, x, 5, 1, LINE)
        canvas.text(TOP + tall + 10, x, label(at), INK, "middle")
    for at in ticks(rows.start, rows.stop):
        y = TOP + round(picture.at("rows", at))
        canvas.box(y, LEFT - 5, 1, 5, LINE)
        canvas.text(y - 3, LEFT - 8, label(at), INK, "end")
    canvas.text(TOP + tall + 30, LEFT + wide // 2, picture.caption, QUIET, "middle")
    name = np.rot90(text_mask("query row (token)"))
    canvas.ink(TOP + max(0, (tall - len(name)) // 2), 8, name, QUIET)


def _legend(canvas: _Canvas, picture: Picture) -> None:
    x, y = LEFT, TOP + picture.pixels[0] + 54
    for colour, meaning in picture.legend:
        canvas.box(y - 2, x, HEIGHT + 2, HEIGHT + 2, LINE)
        canvas.box(y - 1, x + 1, HEIGHT, HEIGHT, colour)
        canvas.text(y, x + 17, meaning, QUIET)
        x += 36 + SPACING * len(meaning)
