"""Attention modules: the nn.MultiheadAttention drop-in, transformer blocks and adapters of frameworks."""

from .adaptive import AdaptiveBlockSparseMultiheadAttention, create_adaptive_sparse_multihead_attention
from .attention import BlockSparseAttention
from .block import BlockSparseTransformerBlock
from .config import SparsePatternConfig
from .factory import create_block_sparse_multihead_attention
from .multihead import BlockSparseMultiheadAttention
from .plan_cache import PlanCache
from .sdpa import memory_efficient_pattern_attention, pattern_attention

__all__ = [
    "AdaptiveBlockSparseMultiheadAttention",
    "BlockSparseAttention",
    "BlockSparseMultiheadAttention",
    "BlockSparseTransformerBlock",
    "PlanCache",
    "SparsePatternConfig",
    "create_adaptive_sparse_multihead_attention",
    "create_block_sparse_multihead_attention",
    "memory_efficient_pattern_attention",
    "pattern_attention",
]
