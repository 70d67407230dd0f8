"""Numbers as people read them: three significant digits, units beside them."""

from __future__ import annotations

import math

NONE = "none"


def percent(value: float | None) -> str:
    """A fraction in percent; what is not measured is "none", never 0, and what is hardly there is not 0 either.

    >>> percent(0.0623), percent(0.00012345), percent(1.0), percent(1e-9), percent(None)
    ('6.23 %', '0.0123 %', '100 %', '< 0.001 %', 'none')
    """
    if value is None:
        return NONE
    return "< 0.001 %" if 0 < value < 1e-5 else f"{_three(100 * value)} %"


def fraction(value: float | None) -> str:
    """A figure between 0 and 1, or any small number.

    >>> fraction(0.93456), fraction(0.0001234)
    ('0.935', '0.000123')
    """
    return NONE if value is None else _three(value)


def count(value: int) -> str:
    """A whole number, exact to a million, then shortened.

    >>> count(12345), count(3_456_789)
    ('12,345', '3.46 M')
    """
    return f"{value:,}" if value < 1_000_000 else scaled(value, "").rstrip()


def scaled(value: float, unit: str) -> str:
    """A quantity with the prefix that keeps it between 1 and 1000.

    >>> scaled(4.1e9, "FLOP"), scaled(0, "FLOP")
    ('4.10 GFLOP', '0 FLOP')
    """
    for size, prefix in ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{_three(value / size)} {prefix}{unit}"
    return f"{value:.3g} {unit}"


def _three(value: float) -> str:
    """Three significant digits, without an exponent."""
    if value == 0:
        return "0"
    rounded = float(f"{value:.2e}")
    return f"{rounded:.{max(0, 2 - math.floor(math.log10(abs(rounded))))}f}"
