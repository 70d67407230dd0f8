"""The same pattern over many GPUs: sequence-sharded attention that fetches only the keys its rows read."""

from .attention import distributed_block_sparse_attention
from .config import DistributedSparseConfig
from .needs import Needs, needs
from .plan import DistributedPlan, distributed_plan
from .traffic import Traffic, routed

__all__ = [
    "DistributedPlan",
    "DistributedSparseConfig",
    "Needs",
    "Traffic",
    "distributed_block_sparse_attention",
    "distributed_plan",
    "needs",
    "routed",
]
