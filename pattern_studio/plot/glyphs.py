"""A small bitmap alphabet, so that a PNG can carry its axis numbers without any font installed."""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import NDArray

WIDTH, HEIGHT, SPACING = 5, 9, 6  # pixels of a glyph, and from one to the next

# One base-32 digit per line of 5 pixels, from the top; lines 7 and 8 are below the base line.
_GLYPHS = {
    " ": "000000000",
    "0": "ehjlphe00",
    "1": "4c4444e00",
    "2": "eh1248v00",
    "3": "eh161he00",
    "4": "26aiv2200",
    "5": "vgu11he00",
    "6": "68guhhe00",
    "7": "v12488800",
    "8": "ehhehhe00",
    "9": "ehhf12c00",
    "K": "hikokih00",
    "M": "hrllhhh00",
    "a": "00e1fhf00",
    "b": "ggmphhu00",
    "c": "00egghe00",
    "d": "11djhhf00",
    "e": "00ehvge00",
    "f": "698s88800",
    "g": "00fhhhf1e",
    "h": "ggmphhh00",
    "i": "40c444e00",
    "j": "2062222ic",
    "k": "ggikoki00",
    "l": "c44444e00",
    "m": "00qllhh00",
    "n": "00mphhh00",
    "o": "00ehhhe00",
    "p": "00uhhhugg",
    "q": "00fhhhf11",
    "r": "00mpggg00",
    "s": "00fge1u00",
    "t": "88s889600",
    "u": "00hhhjd00",
    "v": "00hhha400",
    "w": "00hhlla00",
    "x": "00ha4ah00",
    "y": "00hhhhf1e",
    "z": "00v248v00",
    ",": "00000c480",
    ".": "00000cc00",
    "=": "000v0v000",
    "-": "000e00000",
    "(": "248884200",
    ")": "842224800",
}


@cache
def _glyph(letter: str) -> NDArray[np.bool_]:
    rows = np.array([int(digit, 32) for digit in _GLYPHS[letter]])
    return (rows[:, None] >> np.arange(WIDTH - 1, -1, -1)) & 1 == 1


def text_mask(text: str) -> NDArray[np.bool_]:
    """Which pixels the text inks, bool [9, 6 * letters]; it must be made of letters that exist.

    >>> print("\\n".join("".join("-#"[ink] for ink in row) for row in text_mask("47")[:7].astype(int)))
    ---#--#####-
    --##------#-
    -#-#-----#--
    #--#----#---
    #####--#----
    ---#---#----
    ---#---#----
    """
    out = np.zeros((HEIGHT, SPACING * len(text)), bool)
    for n, letter in enumerate(text):
        out[:, n * SPACING : n * SPACING + WIDTH] = _glyph(letter)
    return out
