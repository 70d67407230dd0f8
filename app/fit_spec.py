"""What is to be fitted on the Fit page: plain values, so that they live in the session's state."""

from __future__ import annotations

from dataclasses import dataclass

FREE = "blocks"
ANY = "any"
LATER, NOTHING = "later", "nothing"

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
    - held_out: what the fit may not see and is measured on: LATER, the second half of the rows, which only a family of
      a causal model can leave out; the key of a capture of another text; or NOTHING.
    """

    layout: str = FREE
    density: float = 0.25
    block_q: int = 64
    block_k: int = 16
    floor: float = 0.25
    held_out: str = LATER

    @property
    def block(self) -> tuple[int, int]:
        return self.block_q, self.block_k
