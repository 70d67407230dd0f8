"""Run a lowered pattern: exact block-sparse attention, forward and backward, at a cost that follows its density."""

from .ops import block_sparse_attention
from .plan import Plan, plan
from .plan_from_mask import plan_from_mask

__all__ = ["Plan", "block_sparse_attention", "plan", "plan_from_mask"]
