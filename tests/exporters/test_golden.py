"""Files of every target as this release writes them: later releases write the same bytes, and load what is readable.

A change of a format shows here. Where it is meant, raise the schema's version, keep the old file under its old name
with its own test, and write the new one beside it: `python -m tests.exporters.test_golden` writes what is missing.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import pattern_studio as ps
from pattern_studio.exporters import TARGETS, export, read
from tests.exporters.native import SAMPLE

FOLDER = Path(__file__).parent / "golden"
TWO_HEADS = "heads({0: chunk(32), 1: chunk(64)})"
# target -> (pattern, problem, block); each is held exactly
CASES = {
    "flash_attention_4": ("chunk(256)", ps.Problem(512), 128),
    "deepspeed": (TWO_HEADS, ps.Problem(128, heads=2), 32),
    "xformers": (TWO_HEADS, ps.Problem(128, heads=2), 32),
    "huggingface": ("causal & (window(6, 0) | sink(2))", ps.Problem(40), 16),
    "minference": ("heads({0: causal & (window(63, 0) | sink(4)), 1: causal})", ps.Problem(256, heads=2), 64),
    "vertical_slash": (
        "causal & (rect(range(0, 192), range(0, 192)) | sink(4) | globals(cols=(70, 90)))",
        ps.Problem(192),
        64,
    ),
    "natten": ("causal & dilated(4, 0, rate=3)", ps.Problem(64), 64),
    "flashinfer_bsr": ("causal & (window(20, 0) | sink(3))", ps.Problem(64, 128), (16, 32)),
    "flashinfer_variable": ("docs", ps.Problem(64, docs=(24, 40)), 16),
    "block_sparse_attention": ("heads({0: causal, 1: causal & chunk(128)})", ps.Problem(256, heads=2), 128),
    "spargeattn": ("heads({0: chunk(128), 1: dense})", ps.Problem(256, heads=2), (128, 64)),
    "magi_attention": ("causal & window(20, 0)", ps.Problem(64), 16),
}
READABLE = [name for name in CASES if TARGETS[name].read]
ELSEWHERE = ("flex_attention", "flex_mask_mod", "json", "npz", "safetensors")  # in the tests of their own


def path(name: str) -> Path:
    """Python files are kept as text, so that no tool formats or runs them."""
    suffix = TARGETS[name].suffix
    return FOLDER / f"{name}{suffix}{'.txt' if suffix == '.py' else ''}"


def written(name: str) -> bytes:
    text, problem, block = CASES[name]
    return export(ps.parse(text), problem, block, name).data


def masks(found: ps.Pattern | ps.BlockLayout, problem: ps.Problem) -> np.ndarray:
    if isinstance(found, ps.BlockLayout):
        return np.stack([found.expand(head) for head in range(problem.heads)])
    return ps.dense_mask(found, problem)


def test_every_target_has_a_golden_file():
    assert set(CASES) | set(ELSEWHERE) == set(TARGETS)
    kept = {file.name.partition(".")[0] for file in FOLDER.iterdir()}
    assert kept == set(TARGETS)
    assert sum(file.stat().st_size for file in FOLDER.iterdir()) < 100_000


@pytest.mark.parametrize("name", CASES)
def test_todays_files_are_the_kept_ones(name):
    assert path(name).read_bytes() == written(name)


@pytest.mark.parametrize("name", READABLE)
def test_kept_files_load(name):
    text, problem, block = CASES[name]
    found = read(path(name))
    wanted = ps.dense_mask(ps.parse(text), problem, block=block)
    np.testing.assert_array_equal(masks(found, problem), wanted)


@pytest.mark.parametrize("name", ["npz", "safetensors"])
def test_kept_native_files_lower_to_the_sample(name):
    pattern, problem, block = SAMPLE
    found = read(FOLDER / f"{name}{TARGETS[name].suffix}")
    np.testing.assert_array_equal(masks(found, problem), ps.dense_mask(pattern, problem, block=block))


if __name__ == "__main__":
    for name in CASES:
        if not path(name).exists():
            path(name).write_bytes(written(name))
            print(f"wrote {path(name).name}")
