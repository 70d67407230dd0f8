"""Programs that are started again get what Triton would hand over, without its search."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import ClassVar

import torch

from pattern_studio.learned.programs.launch import launch

CALLS = {
    "choose_pooled": ["means", "chosen"],
    "choose_mean_query": ["query_means", "grouped_mass", "best"],
    "pooled": ["means", "chosen"],
    "pooled_long_rows": ["means", "tile_mass"],
}


def test_a_repeated_start_hands_over_what_triton_would():
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    command = [sys.executable, "-m", "tests.learned.record_launches"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    found = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert [row["call"] for row in found] == list(CALLS)
    for row in found:
        assert row["programs"] == CALLS[row["call"]]
        assert row["searched_again"] == []
        assert row["same"] == [True] * len(row["programs"])


def test_a_whole_number_and_the_float_that_equals_it_are_two_programs():
    class Compiled:
        packed_metadata = None

        def __getitem__(self, grid):
            return lambda *given: None

    class Program:
        arg_names = ("X", "factor")
        searched: ClassVar[list[tuple]] = []

        def __getitem__(self, grid):
            return lambda *given: self.searched.append(given[1:]) or Compiled()

    program, x = Program(), torch.zeros(1)
    for factor in (1, 1.0, 1, 1.0):
        launch(program, 1, (x,), (factor,))
    assert [tuple(map(type, given)) for given in program.searched] == [(int,), (float,)]
