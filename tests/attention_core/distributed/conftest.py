from __future__ import annotations

import pytest

from .ranks import Ranks


@pytest.fixture(scope="session")
def four_ranks(tmp_path_factory):
    ranks = Ranks(4, tmp_path_factory.mktemp("ranks"))
    yield ranks
    ranks.close()
