"""The guide's custom pattern, every third block beside a block-wide window: from loops to one line, and on to a kernel.

python -m gallery.stories.custom_pattern
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

import pattern_studio as ps
from attention_core import block_sparse_attention, plan

LINE = "comb({third}, (range(0, {block}),)) | chunk({block}) | chunk({block}) >> {block} | chunk({block}) >> -{block}"


def by_loops(blocks: int) -> NDArray[np.bool_]:
    """The block mask as one writes it first, bool [blocks, blocks]: the diagonal, its neighbours, every third block."""
    mask = np.zeros((blocks, blocks), bool)
    for row in range(blocks):
        for key in range(blocks):
            mask[row, key] = key % 3 == 0 or abs(row - key) <= 1
    return mask


def main(tokens: int = 1024, block: int = 64) -> dict[str, float]:
    """Print the story and return the density and the largest difference from dense attention under the same mask."""
    mask = by_loops(tokens // block)
    listed = ps.blocks.from_mask(mask, block)
    line = ps.parse(LINE.format(third=3 * block, block=block))
    verdict = ps.diff(listed, line, ps.Problem(tokens)).verdict
    print(f"The loops list {int(mask.sum())} of {mask.size} blocks. As one line, at any length:\n\n  {line}\n")
    print(f"The two are {verdict} on {tokens} tokens; a query beyond them is seen by the line alone.\n")
    print(ps.draw(line, 48, q_len=tokens, block=block))

    layout = ps.lower(line, ps.Problem(tokens, heads=2), block=block)
    made = torch.Generator().manual_seed(0)
    q, k, v = torch.randn(3, 1, 2, tokens, 32, generator=made, dtype=torch.float64)
    out = block_sparse_attention(q, k, v, plan(layout))
    allowed = torch.from_numpy(mask.repeat(block, 0).repeat(block, 1))
    wanted = torch.nn.functional.scaled_dot_product_attention(q, k, v, allowed)
    found = {
        "equal": float(verdict == "equal"),
        "block density": layout.tiles() / (layout.q_blocks * layout.kv_blocks * 2),
        "difference": (out - wanted).abs().max().item(),
    }
    print(
        f"\nblock density {found['block density']:.3f}; the kernel's output differs from dense attention under the "
        f"loops' mask by at most {found['difference']:.1e}"
    )
    causal = ps.causal & line
    print(f"For a decoder it is {str(causal)[:40]}...: {ps.lower(causal, q_len=tokens, block=block).tiles()} tiles.")
    return found


if __name__ == "__main__":
    main()
