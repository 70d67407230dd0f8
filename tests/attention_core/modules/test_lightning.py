"""A LightningModule as the guide has it, trained by the real Trainer."""

from __future__ import annotations

import lightning
import pytest
import torch
from torch import nn

from attention_core.modules.block import BlockSparseTransformerBlock
from attention_core.modules.config import SparsePatternConfig

pytestmark = pytest.mark.filterwarnings("ignore")  # Lightning's advice on workers, loggers and its own dependencies


def test_a_language_model_learns_and_logs_what_was_measured():
    class SparseLM(lightning.LightningModule):
        """A small causal language model whose blocks keep half of the causal triangle's tiles."""

        def __init__(self) -> None:
            super().__init__()
            config = SparsePatternConfig("local_window", density=0.5, block_size=8)
            self.embed, self.head = nn.Embedding(8, 32), nn.Linear(32, 8)
            self.place = nn.Parameter(torch.randn(40, 32) * 0.5)
            self.block = BlockSparseTransformerBlock(32, 2, pattern=config)
            self.block.attention.performance_monitor.enable()
            self.losses: list[float] = []

        def training_step(self, ids: torch.Tensor) -> torch.Tensor:
            logits = self.head(self.block(self.embed(ids) + self.place, is_causal=True))
            loss = nn.functional.cross_entropy(logits[:, 1:].flatten(0, 1), ids[:, :-1].flatten())
            stats = self.block.attention.get_performance_stats()
            self.log("train/block_density", stats["block_density"])
            self.log("train/forward_ms", stats["avg_forward_time_ms"])
            self.losses.append(float(loss.detach()))
            return loss

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.AdamW(self.parameters(), lr=1e-2)

    torch.manual_seed(0)
    model = SparseLM()
    data = torch.utils.data.DataLoader(torch.randint(0, 8, (400, 40)), batch_size=16)
    trainer = lightning.Trainer(
        max_epochs=2,
        accelerator="cpu",
        devices=1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(model, data)
    assert len(model.losses) == 50
    assert model.losses[0] > 1.9
    assert model.losses[-1] < 1.0
    assert 0 < float(trainer.logged_metrics["train/block_density"]) <= 0.5
    assert float(trainer.logged_metrics["train/forward_ms"]) > 0
