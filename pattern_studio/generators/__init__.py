"""Generators: patterns by budget. Each takes a block density, a Problem and a block, and says what it achieved.

>>> import pattern_studio as ps
>>> made = local_window(0.1, ps.Problem(32768), block=128)
>>> str(made.pattern), round(made.achieved.block_of_causal, 4)
('causal & window(1536, 0)', 0.0988)
"""

from .budget import Achieved, Generated
from .dilated_sparse import dilated_sparse
from .global_local import global_local
from .hierarchical import hierarchical
from .local_window import local_window

GENERATORS = {f.__name__: f for f in (local_window, dilated_sparse, global_local, hierarchical)}

__all__ = [
    "GENERATORS",
    "Achieved",
    "Generated",
    "dilated_sparse",
    "global_local",
    "hierarchical",
    "local_window",
]
