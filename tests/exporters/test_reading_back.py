"""Files of kernels that are read back: what is wrong with a hostile one is said, and nothing large is made of it."""

from __future__ import annotations

import numpy as np
import pytest

import pattern_studio as ps
from pattern_studio.exporters import TARGETS, export, read
from pattern_studio.exporters._bundle import pack
from tests.exporters.consumers import arrays

I32 = np.int32
FILES = {
    "magi_attention": (ps.causal & ps.window(20, 0), ps.Problem(64), 16),
    "vertical_slash": (ps.causal, ps.Problem(128), 64),
    "flashinfer_variable": (ps.docs, ps.Problem(64, docs=(24, 40)), 16),
    "flash_attention_4": (ps.chunk(256), ps.Problem(512), 128),
}


def changed(name: str, **changes: np.ndarray) -> bytes:
    header, parts = arrays(export(*FILES[name], to=name))
    assert set(changes) <= set(parts)
    return pack(header, parts | changes)


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("magi_attention", {"attn_type_map": np.array([1, 4], I32)}, "attention types 0 to 3"),
        ("magi_attention", {"attn_type_map": np.array([1], I32)}, r"q_ranges int32 \[1, 2\], got int32 \[2, 2\]"),
        ("magi_attention", {"q_ranges": np.zeros((2, 2))}, r"q_ranges int32 \[2, 2\], got float64 \[2, 2\]"),
        ("magi_attention", {"q_ranges": np.array([[0, 9], [9, 4]], I32)}, "ranges that begin before they end"),
        ("magi_attention", {"q_ranges": np.array([[0, 9], [9, 2**31 - 1]], I32)}, "at most 16,777,216 are read"),
        ("magi_attention", {"k_ranges": np.array([[0, 9], [0, 99]], I32)}, "rows and keys of the file's problem"),
        ("magi_attention", {"q_ranges": np.array([[0, 9], [8, 64]], I32)}, "that do not overlap"),
        ("vertical_slash", {"block_count": np.array([[[1, 9]]], I32)}, "counts of block_offset between 0 and 2"),
        ("vertical_slash", {"block_count": np.array([[[1, -1]]], I32)}, "counts of block_offset between 0 and 2"),
        ("vertical_slash", {"block_count": np.array([[1, 2]], I32)}, r"block_count int32 \[1, 1, 2\]"),
        ("vertical_slash", {"block_offset": np.zeros((1, 1, 2, 2), I32)}, "that do not overlap"),
        ("vertical_slash", {"column_count": np.array([[[0, 1]]], I32)}, "that do not overlap"),
        ("flashinfer_variable", {"block_row_sz": np.array([[24, 41]], I32)}, "add up to 64 for each head"),
        ("flashinfer_variable", {"block_col_sz": np.array([[-1, 65]], I32)}, "add up to 64 for each head"),
        ("flashinfer_variable", {"block_mask_map": np.ones((1, 2, 3), bool)}, r"block_mask_map bool \[1, 2, 2\]"),
        ("flash_attention_4", {"full_block_idx": np.full((1, 1, 4, 4), 4, I32)}, "blocks 0 to 3 in full_block_idx"),
        ("flash_attention_4", {"mask_block_cnt": np.ones((1, 1, 4), I32)}, "no masked blocks"),
        ("flash_attention_4", {"bwd_full_block_cnt": np.zeros((1, 1, 4), I32)}, "the transpose of the forward's"),
    ],
)
def test_hostile_files_are_refused(name, changes, message):
    with pytest.raises(ps.StudioError, match=message):
        read(changed(name, **changes))


def test_what_is_read_back_and_what_is_not():
    """Code is never run to be read; NATTEN's parameters say no length, and its borders depend on it."""
    unread = {name for name, target in TARGETS.items() if target.read is None}
    assert unread == {"flex_attention", "flex_mask_mod", "xformers", "huggingface", "natten"}


def test_a_causal_slice_with_more_rows_than_keys_leaves_rows_empty():
    data = changed(
        "magi_attention",
        q_ranges=np.array([[0, 8]], I32),
        k_ranges=np.array([[4, 7]], I32),
        attn_type_map=np.array([1], I32),
    )
    wanted = np.zeros((64, 64), bool)
    wanted[:8, 4:7] = np.tril(np.ones((8, 3), bool), -5)
    np.testing.assert_array_equal(read(data).expand(0), wanted)
