"""Compile for sm_90, without a GPU, the programs of scores and choices. Run as a program by test_programs.py."""

from __future__ import annotations

import torch
from triton.runtime import driver

from pattern_studio.learned.programs.best import best_tiles
from pattern_studio.learned.programs.chosen import Rows, chosen_of_means, scores_of_means
from pattern_studio.learned.programs.crossed import masses_crossed
from pattern_studio.learned.programs.grouped_mass import mass_by_group
from pattern_studio.learned.programs.means import means_of_blocks
from pattern_studio.learned.programs.query_means import means_of_queries
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
    means = a.bfloat16()
    for block in (128, 64, 8):
        compiled(f"means_{block}", lambda block=block: means_of_blocks(q, k, (block, block), 0.1, None, None))
        compiled(f"query_means_{block}", lambda block=block: means_of_queries(q, block, 0.1, None))
        compiled(
            f"grouped_mass_{block}", lambda tile=block: mass_by_group(means, k, last, tile, causal=True, real=None)
        )
    flags = last.new_ones(1, 4096) > 0
    compiled("query_means_flags", lambda: means_of_queries(q, 64, 0.1, flags))
    compiled("grouped_mass_flags", lambda: mass_by_group(means, k, last, 8, causal=True, real=flags))
    wide = torch.zeros(1, 2, 4096, 256)
    compiled("means_single", lambda: means_of_blocks(wide, wide, (128, 64), 0.1, last[:, :1] > 0, None))
    compiled("mass_wide", lambda: mass_of_tiles(a.repeat(1, 1, 1, 2), wide.bfloat16(), last, 128, causal=True))
    compiled("mass_wide_single", lambda: mass_of_tiles(a.repeat(1, 1, 1, 2), wide, last, 128, causal=True))
    for tiles in (256, 512, 1024):
        rows_of = Rows.of(torch.ones(1, 512, tiles, dtype=torch.bool), None, last.new_ones(1, 512))
        pooled = torch.zeros(4 * 512 + 2 * tiles, 128, dtype=torch.bfloat16), torch.zeros(2 * tiles), (1, 4, 2)
        compiled(f"chosen_{tiles}", lambda pooled=pooled, rows_of=rows_of: chosen_of_means(*pooled, rows_of))
        compiled(f"scores_{tiles}", lambda pooled=pooled, rows_of=rows_of: scores_of_means(*pooled, rows_of))
    visible = torch.ones(1, 1, 64, 4096, dtype=torch.bool)
    budget = torch.ones(1, 1, 64, dtype=torch.int64)
    compiled("best", lambda: best_tiles(torch.zeros(1, 4, 64, 4096), visible, visible, budget))


if __name__ == "__main__":
    main()
