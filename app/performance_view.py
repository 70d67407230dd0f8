"""What the Performance page looks at."""

from __future__ import annotations

from dataclasses import dataclass, replace

from pattern_studio import StudioError

from .timing_file import TimingFile, read

KEPT = 4  # files that a visitor brought; the oldest goes first


@dataclass(frozen=True)
class Given:
    """Results that a visitor brought, beside those that are installed; what was wrong with the last file, if anything.

    `count` is how many files there have been, sound or not.
    """

    files: tuple[TimingFile, ...] = ()
    problem: str = ""
    count: int = 0

    def taken(self, name: str, data: bytes) -> Given:
        """With another file; one that can't be read changes nothing but `problem`.

        >>> Given().taken("x.json", b"[]").problem
        'x.json: expected an object with a list of "rows", got none; take a result of benchmarks.run'
        """
        short = "".join(letter if letter.isprintable() else "?" for letter in name[-60:])
        try:
            files = (*self.files, read(data, short))[-KEPT:]
        except StudioError as error:
            return replace(self, problem=str(error), count=self.count + 1)
        return Given(files, count=self.count + 1)


@dataclass(frozen=True)
class PerformanceView:
    """The page's choices; "" and 0 are what the results have most of.

    - card, dim: whose times, at how many channels a head; tokens: at which length, -1 for all of them.
    - direction: "forward", "backward" or "both", the sum of the two.
    """

    card: str = ""
    dim: int = 0
    tokens: int = 0
    direction: str = "forward"
    given: Given = Given()
