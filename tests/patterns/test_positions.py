"""Lists of positions are kept sorted, apart and as short as can be, whichever way they are written."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pattern_studio import StudioError
from pattern_studio.spans import positions


@given(st.lists(st.integers(0, 60), min_size=1))
def test_numbers_are_what_ranges_of_one_are(numbers):
    kept = positions("rows", numbers)
    assert kept == positions("rows", [range(n, n + 1) for n in numbers])
    assert [n for item in kept for n in (item if isinstance(item, range) else [item])] == sorted(set(numbers))


@pytest.mark.parametrize("numbers", [[3, -1], [2**31], [True, 2], [1.0, 2], [2**70]])
def test_what_is_no_position(numbers):
    with pytest.raises(StudioError, match="a position in rows must"):
        positions("rows", numbers)
