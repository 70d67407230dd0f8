"""What is to be recorded: plain values, kept for the form."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class RecordSpec:
    """The model's folder, its layers as typed, how many tokens of the text, and the text; "" is the bundled one's.

    `gradients`: whether what the loss minds is measured as well, for fits; `minds`: whether what the model minds of
    layers and rows is, which damage is weighed by.
    """

    folder: str = ""
    layers: str = "0"
    tokens: int = 512
    text: str = ""
    gradients: bool = False
    minds: bool = False
