"""deepspeed: A18, and what the layout admits against the pattern; DeepSpeed's own classes where it is installed."""

from __future__ import annotations

from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from hypothesis import given, settings

import pattern_studio as ps
from pattern_studio.exporters import export, read
from tests.exporters.consumers import anything, arrays, compared, long_problems, stretched


def admitted(file, problem):
    header, parts = arrays(file)
    assert parts["layout"].dtype == np.int64
    assert set(np.unique(parts["layout"])) <= {0, 1}
    return stretched(parts["layout"], header["block"], problem)


@settings(max_examples=20, deadline=None)
@given(anything, long_problems(square=True))
def test_layout_holds_the_pattern(pattern, problem):
    file = compared("deepspeed", pattern, problem, 64, lambda f: admitted(f, problem))
    if file:
        again = ps.dense_mask(read(file.data), problem)
        np.testing.assert_array_equal(again, admitted(file, problem))


def test_causal_diagonals_are_refused_unless_covered():  # A18(a)
    problem = ps.Problem(32)
    message = r"deepspeed can't hold this pattern exactly, it adds 240 pairs; .* ask for it by name \(allow='cover'\)"
    with pytest.raises(ps.StudioError, match=message):
        export(ps.causal, problem, 16, to="deepspeed")
    file = export(ps.causal, problem, 16, to="deepspeed", allow="cover")
    assert admitted(file, problem).sum() == 768
    assert ps.lower(ps.causal, problem, block=16).pairs == 528
    assert str(file.fidelity) == "cover(+240)"


@pytest.mark.parametrize("seed", range(10))
def test_random_layouts_come_back_identical(seed):  # A18(b)
    layout = np.random.default_rng(seed).integers(0, 2, (8, 64, 64))
    pattern = ps.heads({head: ps.blocks.from_mask(table, 16) for head, table in enumerate(layout)})
    problem = ps.Problem(1024, heads=8)
    file = export(pattern, problem, 16, to="deepspeed")
    assert str(file.fidelity) == "exact"
    _, parts = arrays(file)
    np.testing.assert_array_equal(parts["layout"], layout)
    np.testing.assert_array_equal(parts["layout"].sum((1, 2)), layout.sum((1, 2)))
    assert read(file.data) == pattern


@pytest.mark.parametrize(
    ("problem", "block", "message"),
    [
        (
            ps.Problem(64, 128),
            16,
            "as many queries as keys, at the same positions, got q_len 64, kv_len 128, q_offset 64",
        ),
        (ps.Problem(64), (16, 8), "square blocks that divide the length 64, got 16 x 8"),
        (ps.Problem(100), 16, "square blocks that divide the length 100, got 16 x 16"),
        (ps.Problem(100), 25, "blocks of 16, 32, 64 or 128 tokens, got 25"),
    ],
)
def test_what_does_not_fit_is_said(problem, block, message):
    with pytest.raises(ps.StudioError, match=f"deepspeed can't hold this pattern: .* takes? {message}"):
        export(ps.causal, problem, block, to="deepspeed", allow="cover")


def configs() -> ModuleType:
    """DeepSpeed's sparsity_config.py by itself, since its package wants a compiler when it is imported."""
    found = find_spec("deepspeed")
    places = (found.submodule_search_locations or [""]) if found else [""]
    path = Path(places[0], "ops/sparse_attention/sparsity_config.py")
    if not path.is_file():
        pytest.skip("needs DeepSpeed's layout classes: pip install --no-deps deepspeed==0.17.6, the last that has them")
    spec = spec_from_file_location("sparsity_config", path)
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("text", "heads", "name", "arguments"),
    [
        ("deepspeed_fixed()", 2, "FixedSparsityConfig", {}),
        ("deepspeed_fixed(causal=True)", 2, "FixedSparsityConfig", {"attention": "unidirectional"}),
        ("deepspeed_fixed(horizontal=True)", 2, "FixedSparsityConfig", {"horizontal_global_attention": True}),
        (
            "deepspeed_fixed(heads=4, global_patterns=4)",
            4,
            "FixedSparsityConfig",
            {"different_layout_per_head": True, "num_different_global_patterns": 4},
        ),
        (
            "deepspeed_variable(local_blocks=(4, 2, 3), global_indices=(0, 5))",
            2,
            "VariableSparsityConfig",
            {"local_window_blocks": [4, 2, 3], "global_block_indices": [0, 5]},
        ),
        ("deepspeed_longformer()", 2, "BSLongformerSparsityConfig", {}),
        ("deepspeed_longformer(causal=True)", 2, "BSLongformerSparsityConfig", {"attention": "unidirectional"}),
    ],
)
@pytest.mark.parametrize("tokens", [1024, 2048])
def test_layouts_are_those_of_deepspeeds_own_classes(text, heads, name, arguments, tokens):
    theirs = getattr(configs(), name)(heads, block=16, **arguments).make_layout(tokens)
    file = export(ps.parse(text), ps.Problem(tokens, heads=heads), 16, to="deepspeed", allow="cover")
    _, parts = arrays(file)
    assert parts["layout"].shape == tuple(theirs.shape)
    np.testing.assert_array_equal(parts["layout"], theirs.numpy())
