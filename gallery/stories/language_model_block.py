"""The guide's first example: a stack of sparse transformer blocks reads 100,000 tokens.

    python -m gallery.stories.language_model_block --tokens 100000 --layers 12 --batch 4

The defaults are the guide's. They need about 20 GB and, without a GPU, hours: ask for less there. Two things differ
from the guide's text: `need_weights=False`, since weights of 100,000 x 100,000 pairs are what sparse attention is there
to avoid (asked for, they are refused), and what is printed was measured.
"""

from __future__ import annotations

import argparse
import time

import torch
from torch import Tensor, nn

from attention_core import create_block_sparse_multihead_attention
from pattern_studio import StudioError


class SparseTransformerBlock(nn.Module):
    """The guide's block: attention that keeps a tenth of the tiles, and a feed-forward part, each normalised after."""

    def __init__(
        self, d_model: int = 512, n_heads: int = 8, sparsity: float = 0.1, pattern_type: str = "dilated_sparse"
    ):
        super().__init__()
        self.attention = create_block_sparse_multihead_attention(
            embed_dim=d_model, num_heads=n_heads, sparsity_ratio=sparsity, pattern_type=pattern_type, dropout=0.1
        )
        self.norm1, self.norm2 = nn.LayerNorm(d_model), nn.LayerNorm(d_model)
        self.ffn = nn.Sequential(nn.Linear(d_model, 4 * d_model), nn.GELU(), nn.Linear(4 * d_model, d_model))

    def forward(self, x: Tensor) -> Tensor:
        """x [batch, length, d_model] to the same."""
        attended, _ = self.attention(x, x, x, need_weights=False)
        x = self.norm1(x + attended)
        return self.norm2(x + self.ffn(x))


def main(argv: list[str] | None = None) -> dict[str, float]:
    """Run the stack once and return its seconds, the block density that was kept and the cached plan's bytes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, value in (("tokens", 100_000), ("layers", 12), ("batch", 4), ("width", 512), ("heads", 8)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--density", type=float, default=0.1)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    options = parser.parse_args(argv)
    device = torch.device(options.device)
    blocks = (SparseTransformerBlock(options.width, options.heads, options.density) for _ in range(options.layers))
    model = nn.Sequential(*blocks).to(device).eval()
    made = torch.Generator().manual_seed(0)
    x = torch.randn(options.batch, options.tokens, options.width, generator=made).to(device)
    half = torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda")
    with torch.inference_mode(), half:
        begin = time.perf_counter()
        out = model(x)
        finite = bool(out.isfinite().all())  # which waits for the device
        seconds = time.perf_counter() - begin
    attention = model[0].attention
    stats, memory = attention.get_performance_stats(), attention.get_memory_info()
    found = {
        "seconds": seconds,
        "block density": stats["block_density"],
        "plan bytes": memory["plan_bytes"],
        "plans": memory["pattern_cache_size"],
        "finite": float(finite),
    }
    print(
        f"{options.layers} blocks read {options.batch} x {options.tokens:,} tokens in {seconds:.1f} s, the plan's "
        f"making included; {found['block density']:.4f} of the tiles were computed, by one plan for all layers"
    )
    try:
        with torch.inference_mode():
            attention(x, x, x)
    except StudioError as error:
        print(f"With need_weights=True: {error}")
    return found


if __name__ == "__main__":
    main()
