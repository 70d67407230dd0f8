"""The examples in the app's docstrings run; pytest finds only those of the packages under its own name."""

from __future__ import annotations

import doctest
import importlib
import pkgutil

import pattern_studio_app
import pytest

MODULES = [
    module.name
    for module in pkgutil.walk_packages(pattern_studio_app.__path__, "pattern_studio_app.")
    if ".entry" not in module.name  # importing the script would run it
]


@pytest.mark.parametrize("name", MODULES)
def test_examples(name):
    assert doctest.testmod(importlib.import_module(name)).failed == 0
