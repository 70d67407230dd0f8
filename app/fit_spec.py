"""What is to be fitted on the Fit page: plain values, so that they live in the session's state."""

from __future__ import annotations

from dataclasses import dataclass, replace

FREE = "blocks"
ANY = "any"
LATER, NOTHING = "later", "nothing"
MASS, LOSS = "mass", "loss"

# What tiles and members are chosen by -> title.
WORTHS: dict[str, str] = {MASS: "Attention mass", LOSS: "What the loss minds"}
BY_DISTANCE = 0.5  # by loss, the share of a free tile's worth that is the mean of its diagonal, as it was measured

# What a fit may make -> (title, what it is). Between FREE and ANY: the families of pattern_studio.learned.
LAYOUTS: dict[str, tuple[str, str]] = {
    FREE: ("Free tiles", "The tiles that are worth most, wherever they lie; a floor keeps rows and heads alive."),
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
    - by: one of WORTHS; LOSS needs a capture with gradients.
    - held_out: what the fit may not see and is measured on: LATER, the second half of the rows of a causal model, where
      the fit `spares_rows`; the key of a capture of another text; or NOTHING.
    """

    layout: str = FREE
    density: float = 0.25
    block_q: int = 64
    block_k: int = 16
    floor: float = 0.25
    held_out: str = LATER
    by: str = MASS

    @property
    def block(self) -> tuple[int, int]:
        return self.block_q, self.block_k

    @property
    def spares_rows(self) -> bool:
        """Whether rows can be left out: free tiles lie in all of them, gradients are of the loss on the whole text."""
        return self.layout != FREE and self.by != LOSS

    def on(self, gradients: bool) -> FitSpec:
        """What of it a capture with or without gradients can honour: without them all is chosen by mass."""
        return self if gradients else replace(self, by=MASS)
