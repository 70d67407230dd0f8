"""What a consumer computes from a file is compared with the pattern: nothing is missing, and what is added was told."""

from __future__ import annotations

import io
import json
from collections.abc import Callable

import numpy as np
from hypothesis import strategies as st

import pattern_studio as ps
from pattern_studio.exporters import Export, check, export, read
from tests.exporters.trees import exportable

# Patterns that formats of whole tiles can hold, beside those that they can't.
tiled = st.sampled_from(
    [
        ps.dense,
        ps.causal,
        ps.chunk(64),
        ps.chunk(128),
        ps.causal & ps.chunk(128),
        ps.causal & ps.blocks.from_mask([[1, 0, 1], [0, 1, 0], [1, 1, 0]], 128),
        ps.blocks.from_mask([[1, 0], [1, 1]], 128),
        ps.heads({range(0, 2): ps.causal, 2: ps.chunk(128)}),
        ps.causal & (ps.window(70, 0) | ps.sink(5)),
        ps.docs & ps.causal,
        ps.empty,
    ]
)
anything = st.one_of(tiled, exportable)


@st.composite
def long_problems(draw, square: bool = False, longest: int = 200) -> ps.Problem:
    """Lengths from 1 on, some multiples of 128, with documents and, unless square, an offset."""
    sizes = st.one_of(st.sampled_from([64, 128, 192, 256]), st.integers(1, longest))
    q_len = draw(sizes)
    kv_len = q_len if square else draw(sizes)
    offset = None if square else draw(st.one_of(st.none(), st.integers(-20, 40)))
    cut = draw(st.integers(0, kv_len))
    return ps.Problem(q_len, kv_len, offset, 3, (cut, kv_len - cut))


def arrays(file: Export) -> tuple[dict, dict[str, np.ndarray]]:
    """The header and the arrays, as numpy reads them."""
    with np.load(io.BytesIO(file.data), allow_pickle=False) as found:
        parts = {name: found[name] for name in found.files}
    return json.loads(parts.pop("header").tobytes()), parts


def stretched(tiles: np.ndarray, block: tuple[int, int], problem: ps.Problem) -> np.ndarray:
    """A tile mask [heads, q_blocks, kv_blocks] as a token mask, bool [heads, q_len, kv_len]."""
    assert tiles.shape == (problem.heads, -(-problem.q_len // block[0]), -(-problem.kv_len // block[1]))
    tokens = tiles.astype(bool).repeat(block[0], 1).repeat(block[1], 2)
    return tokens[:, : problem.q_len, : problem.kv_len]


def bottom_right(problem: ps.Problem) -> np.ndarray:
    """The causal mask of kernels that count from the bottom right, bool [q_len, kv_len]."""
    return np.tril(np.ones((problem.q_len, problem.kv_len), bool), problem.kv_len - problem.q_len)


def compared(
    to: str, pattern: ps.Pattern, problem: ps.Problem, block: object, computed: Callable[[Export], np.ndarray]
) -> Export | None:
    """Check an export against the pattern; None where the target refuses."""
    fidelity = check(pattern, problem, block, to=to)
    if fidelity.kind == "unsupported":
        assert fidelity.reason
        return None
    file = export(pattern, problem, block, to=to, allow="cover")
    assert file.fidelity == fidelity
    wanted = ps.dense_mask(pattern, problem, block=block)
    found = computed(file)
    assert found.shape == wanted.shape
    assert not (wanted & ~found).any(), "no pair is missing"
    assert int(found.sum()) - int(wanted.sum()) == fidelity.pairs, "what is added is told"
    assert (fidelity.kind == "exact") == (fidelity.pairs == 0)
    return file


def comes_back(file: Export | None, problem: ps.Problem, computed: Callable[[Export, ps.Problem], np.ndarray]) -> None:
    """What is read from a file is what its consumer computes from it, added pairs included."""
    if file is None:
        return
    found = read(file.data)
    if isinstance(found, ps.BlockLayout):
        assert found.problem == problem
        again = np.stack([found.expand(head) for head in range(problem.heads)])
    else:
        again = ps.dense_mask(found, problem)
    np.testing.assert_array_equal(again, computed(file, problem))
