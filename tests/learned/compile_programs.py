"""Compile for sm_90, without a GPU, the programs of scores and choices. Run as a program by test_programs.py."""

from __future__ import annotations

import torch
from triton.runtime import driver

from pattern_studio.learned.programs.best import best_tiles
from pattern_studio.learned.programs.crossed import masses_crossed
from pattern_studio.learned.programs.shares import shares_of_rows
from pattern_studio.learned.programs.sums import sums_of_blocks
from pattern_studio.learned.programs.tile_mass import mass_of_tiles
from tests.attention_core.compile_for_hopper import Hopper, compiled


def main() -> None:
    driver.set_active(Hopper())
    q, k = (torch.zeros(1, heads, 4096, 128, dtype=torch.bfloat16) for heads in (4, 2))
    a, last, near = torch.zeros(1, 4, 256, 128), torch.zeros(1, 256, dtype=torch.int64), torch.zeros(4, 4)
    compiled("sums", lambda: sums_of_blocks(q, 128, None))
    compiled("mass", lambda: mass_of_tiles(a, k, last, 128, causal=True))
    compiled("mass_keys", lambda: mass_of_tiles(a, k, last, 1, causal=True, step=128, weight=torch.zeros(1, 4096)))
    compiled("mass_near", lambda: mass_of_tiles(a, k, last, 8, causal=True, near=near))
    compiled("mass_single", lambda: mass_of_tiles(a, k.float(), last, 64, causal=False))
    compiled("shares", lambda: shares_of_rows(torch.zeros(1, 4, 256, 512), last, 2, 1e-30))
    sums, rows = torch.zeros(1, 4, 4097, dtype=torch.float64), torch.zeros(1, 64, dtype=torch.int64)
    compiled("crossed", lambda: masses_crossed(sums, sums, (rows, rows), rows[0, :1], 64, 0, True, 1e-30))
    visible = torch.ones(1, 1, 64, 4096, dtype=torch.bool)
    budget = torch.ones(1, 1, 64, dtype=torch.int64)
    compiled("best", lambda: best_tiles(torch.zeros(1, 4, 64, 4096), visible, visible, budget))


if __name__ == "__main__":
    main()
