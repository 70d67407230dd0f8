"""What is to be fitted on the Fit page: plain values, so that they live in the session's state."""

from __future__ import annotations

from dataclasses import dataclass

FREE = "blocks"
ANY = "any"

# What a fit may make -> (title, what it is). Between FREE and ANY: the families of pattern_studio.learned.
LAYOUTS: dict[str, tuple[str, str]] = {
    FREE: ("Free tiles", "The tiles that hold most attention, wherever they lie; a floor keeps rows and heads alive."),
    "local_window": ("Windows", "For each head the window, with or without sinks, that pays most."),
    "dilated_sparse": ("Dilated windows", "For each head the window with gaps that pays most."),
    "global_local": ("Global + local", "For each head the window beside global tokens that pays most."),
    "hierarchical": ("Hierarchical", "For each head the near-and-coarse pattern that pays most."),
    "columns": ("Window + columns", "For each head a window and the key columns that hold most attention."),
    ANY: ("Best family per head", "Each head takes whichever family pays most; it tries all of them."),
}


@dataclass(frozen=True)
class FitSpec:
    """A fit as asked for.

    - layout: one of LAYOUTS.
    - density: block density, of the tiles of the model's own dense mask, over all heads and layers together.
    - block_q, block_k: the tile in tokens.
    - floor: share of the mean budget that no head falls below, and with free tiles no query block.
    - later: fit on the first half of the rows only, and measure the other half as held out (families).
    - second: key of a capture of another text to be measured as held out, "" for none.
    """

    layout: str = FREE
    density: float = 0.25
    block_q: int = 64
    block_k: int = 16
    floor: float = 0.25
    later: bool = True
    second: str = ""

    @property
    def block(self) -> tuple[int, int]:
        return self.block_q, self.block_k
