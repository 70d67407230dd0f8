"""What the Performance page looks at."""

from __future__ import annotations

from dataclasses import dataclass

from .timing_file import TimingFile


@dataclass(frozen=True)
class PerformanceView:
    """The page's choices; "" and 0 are what the results have most of.

    - card, dim: whose times, at how many channels a head; tokens: at which length, -1 for all of them.
    - direction: "forward", "backward" or "both", the sum of the two.
    - given: results that the visitor brought, beside those that are installed.
    """

    card: str = ""
    dim: int = 0
    tokens: int = 0
    direction: str = "forward"
    given: tuple[TimingFile, ...] = ()
