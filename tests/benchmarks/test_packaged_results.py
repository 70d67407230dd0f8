"""An installed app finds the results: the wheel has the folder that the benchmarks write into."""

from __future__ import annotations

import tomllib
from pathlib import Path

from pattern_studio_app import timing_folder

ROOT = Path(__file__).parents[2]


def test_the_wheel_has_the_results_where_the_app_looks_for_them():
    setup = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    package = "pattern_studio_app.results"
    assert package in setup["packages"]
    assert setup["package-data"][package] == ["*.json"]
    folder = ROOT / setup["package-dir"][package]
    files, wrong = timing_folder.read_folder(folder)
    assert files
    assert wrong == ()
    # In a wheel, `pattern_studio_app.results` lies inside the package: the first place that is looked at.
    assert timing_folder.OWN[0] == timing_folder.HERE / package.rpartition(".")[2]
