"""The guide's Lightning example: a LightningModule with sparse attention that trains and logs what was measured.

    python -m gallery.training.lightning_model --epochs 2

On GPUs give `--accelerator gpu --devices 8`; Lightning then uses DDP.
"""

from __future__ import annotations

import argparse
from typing import Any

import lightning
import torch
from torch import nn

from attention_core import BlockSparseTransformerBlock, SparsePatternConfig


class SparseLM(lightning.LightningModule):
    """A small causal language model whose block keeps a share of the causal triangle's tiles."""

    def __init__(self, tokens: int, width: int = 32, heads: int = 2, density: float = 0.5, block: int = 8) -> None:
        super().__init__()
        config = SparsePatternConfig("local_window", density=density, block_size=block)
        self.embed, self.head = nn.Embedding(8, width), nn.Linear(width, 8)
        self.place = nn.Parameter(torch.randn(tokens, width) * 0.5)
        self.block = BlockSparseTransformerBlock(width, heads, pattern=config)
        self.block.attention.performance_monitor.enable()
        self.losses: list[float] = []

    def training_step(self, ids: torch.Tensor) -> torch.Tensor:
        """The loss of naming the symbol before each; densities and times go to the log."""
        logits = self.head(self.block(self.embed(ids) + self.place, is_causal=True))
        loss = nn.functional.cross_entropy(logits[:, 1:].flatten(0, 1), ids[:, :-1].flatten())
        stats = self.block.attention.get_performance_stats()
        self.log("train/block_density", stats["block_density"])
        self.log("train/forward_ms", stats["avg_forward_time_ms"])
        self.losses.append(float(loss.detach()))
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """AdamW over everything."""
        return torch.optim.AdamW(self.parameters(), lr=1e-2)


def main(argv: list[str] | None = None) -> dict[str, Any]:
    """Train with the real Trainer and return losses and what was logged last."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, value in (("epochs", 2), ("tokens", 40), ("sequences", 400), ("devices", 1)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--accelerator", default="cpu")
    options = parser.parse_args(argv)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = SparseLM(options.tokens)
        data = torch.randint(0, 8, (options.sequences, options.tokens))
    trainer = lightning.Trainer(
        max_epochs=options.epochs,
        accelerator=options.accelerator,
        devices=options.devices,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(model, torch.utils.data.DataLoader(data, batch_size=16))
    logged = {name: float(value) for name, value in trainer.logged_metrics.items()}
    print(f"loss {model.losses[0]:.4f} at first, {model.losses[-1]:.4f} at last; logged last: {logged}")
    return {"losses": model.losses, "logged": logged}


if __name__ == "__main__":
    main()
