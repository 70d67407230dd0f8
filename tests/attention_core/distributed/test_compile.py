"""torch.compile: sharded attention is one graph once the ranks have agreed, and equals the eager call."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import triton

import pattern_studio as ps

from . import work
from .test_attention import WAYS

# Triton 3.6's interpreter, in which the ranks run the kernels, counts loops with int() of arrays of one element, which
# NumPy 2.4 refuses; Triton 3.9's takes the element first.
UNCOUNTED = triton.__version__.startswith("3.6.") and np.lib.NumpyVersion(np.__version__) >= "2.4.0"
PATTERN = "heads({0:1: causal & window(9, 0), 1:2: causal & (window(4, 0) | sink(3))})"


@pytest.mark.skipif(UNCOUNTED, reason="this Triton's interpreter can't count loops with this NumPy")
@pytest.mark.parametrize("by_programs", [False, True])
@pytest.mark.parametrize("options", [one for one in WAYS if one.get("common", True)])
def test_one_graph_as_exact_as_eager(four_ranks, options, by_programs):
    problem = ps.Problem(48, heads=2)
    tensors = work.tensors_for(problem, 1, 2, (16, 16), seed=0, dtype=torch.float32)
    arguments = PATTERN, problem, 16, tensors, options
    if by_programs:
        found = four_ranks.run(work.by_programs, 2, work.compiled, *arguments)
    else:
        found = four_ranks.run(work.compiled, 2, *arguments)
    for first_graphs, later_graphs, pairs in found:
        assert first_graphs > 1  # the ranks compare their calls outside of a graph,
        assert later_graphs == 1  # and never again
        for eager, one_graph in pairs:
            torch.testing.assert_close(one_graph, eager, atol=1e-6, rtol=1e-6)
