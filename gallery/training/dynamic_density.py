"""The guide's dynamic density: start conservative, tighten while the measured quality holds.

    python -m gallery.training.dynamic_density --epochs 12

The quality is the attention mass that the pattern keeps of the same module run densely, on text that is not trained on.
"""

from __future__ import annotations

import argparse

import torch
from torch import nn

from attention_core import BlockSparseTransformerBlock, SparsePatternConfig
from pattern_studio.learned import DensitySchedule

from .language_model import stdlib


class Reader(nn.Module):
    """Bytes in, the next byte out, by one block."""

    def __init__(self, tokens: int, width: int, config: SparsePatternConfig) -> None:
        super().__init__()
        self.bytes, self.places = nn.Embedding(256, width), nn.Embedding(tokens, width)
        self.block, self.head = BlockSparseTransformerBlock(width, 4, pattern=config), nn.Linear(width, 256)

    def embedded(self, text: torch.Tensor) -> torch.Tensor:
        """What the block is given, [batch, tokens, width]."""
        return self.bytes(text) + self.places.weight

    def forward(self, text: torch.Tensor) -> torch.Tensor:
        """Logits [batch, tokens, 256]."""
        return self.head(self.block(self.embedded(text), is_causal=True))


def main(argv: list[str] | None = None) -> list[dict[str, float]]:
    """Train and return loss, quality and density of each epoch."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, value in (("epochs", 12), ("steps", 20), ("tokens", 1024), ("width", 128), ("block", 32)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--quality", type=float, default=0.9)
    options = parser.parse_args(argv)
    schedule = DensitySchedule(start=0.5, least=0.15, quality=options.quality, factor=0.8)
    config = SparsePatternConfig("global_local", density=schedule.density, block_size=options.block, global_tokens=4)
    text = stdlib(300_000).long()
    order = torch.Generator().manual_seed(0)

    def batch(low: int, high: int) -> torch.Tensor:
        first = torch.randint(low, high - options.tokens - 1, (2, 1), generator=order)
        return text[first + torch.arange(options.tokens + 1)]

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = Reader(options.tokens, options.width, config)
    attention = model.block.attention
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    told = []
    for epoch in range(options.epochs):
        losses = []
        for _ in range(options.steps):
            whole = batch(0, 270_000)
            loss = nn.functional.cross_entropy(model(whole[:, :-1]).flatten(0, 1), whole[:, 1:].flatten())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(float(loss.detach()))
        x = model.block.attention_norm(model.embedded(batch(270_000, 300_000)[:, :-1])).detach()
        stats = attention.measure(x, x, x, is_causal=True, repeats=1)
        told.append(
            {
                "loss": sum(losses) / len(losses),
                "quality": stats["quality_score"],
                "asked": schedule.density,
                "block_density": stats["block_density"],
            }
        )
        attention.set_sparsity_ratio(schedule.update(stats["quality_score"]))
        print(
            f"epoch {epoch:2} loss {told[-1]['loss']:.4f}, kept {told[-1]['quality']:.4f} of the mass at a density of "
            f"{told[-1]['asked']:.3f} of the causal tiles; next {schedule.density:.3f}"
        )
    return told


if __name__ == "__main__":
    main()
