"""Programs that are started again get what Triton would hand over, without its search."""

from __future__ import annotations

import json
import os
import subprocess
import sys

CALLS = {
    "choose_pooled": ["means", "chosen"],
    "choose_mean_query": ["means", "tile_mass", "best"],
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
