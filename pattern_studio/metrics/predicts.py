"""How well the first figure of a report predicts the loss: what it is called, and what was measured of it."""

from __future__ import annotations

from collections.abc import Collection

SOURCE = "gallery/claims/2026-11-29-predictors.md"  # tests hold the numbers below to it
# Rank correlations, cut to three digits; the best comes first. On SmolLM2-135M and Qwen2.5-Coder-0.5B they are with the
# loss that a pattern adds, on all-MiniLM-L6-v2 with how far it moves the embeddings: of that model's loss too few pairs
# were measured, and the first figure needs a decoder. That one was chosen with both models' losses in view; the others
# were made up before anything was measured on Qwen.
CORRELATIONS: dict[str, tuple[float, float, float | None]] = {
    "minded_damage": (0.915, 0.917, None),
    "weighted_damage": (0.925, 0.828, 0.949),
    "damage": (0.896, 0.750, 0.922),
}
FRESH = (0.785, 0.913)  # of the first figure, the least and the most on patterns that nothing was chosen on
MEANING = {
    "minded_damage": "lost mass of the rows that the loss minds, turned outputs of heads, and how much of the residual "
    "stream changes",
    "weighted_damage": "lost mass of rows and turned outputs of heads, layers weighed by how much the model minds each",
    "damage": "lost mass and turned outputs of the heads, every layer alike",
}


def first_figure(figures: Collection[str]) -> str | None:
    """Of those above the one that predicts best, where it was measured; None where none was.

    >>> first_figure({"recall": 1, "damage": 0.5}), first_figure({"damage": 0.5, "weighted_damage": 0.1})
    ('damage', 'weighted_damage')
    """
    return next((name for name in CORRELATIONS if name in figures), None)


def described(name: str) -> str:
    """What the figure is and what its rank correlation was, and with what, as a sentence.

    >>> described("damage")[:63]
    'Damage: lost mass and turned outputs of the heads, every layer '
    """
    smollm2, qwen, encoder = CORRELATIONS[name]
    losses = f"{smollm2:.3f} with the loss of SmolLM2-135M"
    if encoder is None:
        told = f"{losses} and {qwen:.3f} with that of Qwen2.5-Coder-0.5B, on both of which it was chosen, and "
        told += f"{FRESH[0]:.3f} to {FRESH[1]:.3f} on patterns that nothing was chosen on"
    else:
        told = (
            f"{losses}, {qwen:.3f} with that of Qwen2.5-Coder-0.5B and {encoder:.3f} with how far the embeddings of "
            "all-MiniLM-L6-v2 move"
        )
    return (
        f"{name.replace('_', ' ').capitalize()}: {MEANING[name]}; 0 is best. Its rank correlation was {told}, measured "
        f"over all of their layers ({SOURCE})."
    )
