"""The README's commands print what it shows of them."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from pattern_studio.cli import main

SHELL = re.findall(
    r"^```\n(\$ .*?)^```$", Path(__file__).parents[1].joinpath("README.md").read_text("utf-8"), re.M | re.S
)
SHOWN = [  # command, lines
    (command.partition("  #")[0].strip(), told.splitlines())
    for block in SHELL
    for command, told in re.findall(r"^\$ pattern-studio (.*)\n((?:(?!\$ ).*\n)*)", block, re.M)
]
ELSEWHERE = ("stats",)  # folded by hand and timed, as the README says


def test_every_kind_of_output_is_there():
    assert {"stats", "show", "analyze", "export", "explain", "generate", "conventions", "doctor"} == {
        command.split()[0] for command, _ in SHOWN
    }
    assert sum(command.startswith("export") and "deepspeed" in command for command, _ in SHOWN) == 2


@pytest.mark.parametrize(("command", "lines"), [one for one in SHOWN if not one[0].startswith(ELSEWHERE)])
def test_the_readme_shows_real_output(command, lines, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(shlex.split(command)) in (0, 1, 2)
    told = capsys.readouterr()
    printed = (told.out + told.err).splitlines()
    if "..." not in lines:
        assert printed == lines
        return
    at = 0
    for line in lines:  # in this order; what is between them may be left out
        if line != "...":
            at += printed[at:].index(line) + 1
