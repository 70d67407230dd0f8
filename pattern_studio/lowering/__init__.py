"""Pattern -> BlockLayout: `lower` (analytic, what is used) and `reference` (the dense oracle)."""

from .analytic import lower
from .reference import dense_mask, from_mask

__all__ = ["dense_mask", "from_mask", "lower"]
