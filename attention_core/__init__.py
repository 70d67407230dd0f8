"""Run a lowered pattern: exact block-sparse attention, forward and backward, at a cost that follows its density."""

from .modules import (
    AdaptiveBlockSparseMultiheadAttention,
    BlockSparseAttention,
    BlockSparseMultiheadAttention,
    BlockSparseTransformerBlock,
    PlanCache,
    SparsePatternConfig,
    create_adaptive_sparse_multihead_attention,
    create_block_sparse_multihead_attention,
    memory_efficient_pattern_attention,
    pattern_attention,
)
from .ops import block_sparse_attention
from .plan import Plan, plan
from .plan_from_mask import plan_from_mask

__all__ = [
    "AdaptiveBlockSparseMultiheadAttention",
    "BlockSparseAttention",
    "BlockSparseMultiheadAttention",
    "BlockSparseTransformerBlock",
    "Plan",
    "PlanCache",
    "SparsePatternConfig",
    "block_sparse_attention",
    "create_adaptive_sparse_multihead_attention",
    "create_block_sparse_multihead_attention",
    "memory_efficient_pattern_attention",
    "pattern_attention",
    "plan",
    "plan_from_mask",
]
