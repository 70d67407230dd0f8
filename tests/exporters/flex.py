"""Checks of FlexAttention masks: what tile lists and mask_mod say together, and torch's own attention under it."""

from __future__ import annotations

import builtins
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import torch
import torch.nn.attention.flex_attention as module
from torch.nn.attention.flex_attention import BlockMask


def run_source(text: str, *allowed: str) -> SimpleNamespace:
    """A generated module, run in a namespace of its own; it may import torch, what unpacks tables, and `allowed`."""
    imported = []

    def watched(name, *args, **kwargs):
        imported.append(name.split(".")[0])
        return __import__(name, *args, **kwargs)

    space = {"__name__": "generated", "__builtins__": {**vars(builtins), "__import__": watched}}
    exec(compile(text, "generated", "exec"), space)
    assert set(imported) <= {"torch", "base64", "functools", "zlib", *allowed}
    return SimpleNamespace(**space)


def assert_formatted(*sources: str) -> None:
    """The texts are as ruff would format them, at 120 characters a line, and pass its checks."""
    ruff, style = [sys.executable, "-m", "ruff"], ["--isolated", "--no-cache", "--line-length", "120"]
    with tempfile.TemporaryDirectory() as folder:
        for n, source in enumerate(sources):
            Path(folder, f"generated_{n}.py").write_text(source)
        for action in (["format", "--diff"], ["check", "--select=E,F,W,I"]):
            found = subprocess.run([*ruff, *action, *style, folder], capture_output=True, text=True)
            assert found.returncode == 0, found.stdout


def expanded(mask: BlockMask, heads: int) -> np.ndarray:
    """The token mask, bool [heads, q_len, kv_len]: mask_mod on listed partial tiles, all of full ones, nothing else."""
    q_len, kv_len = mask.seq_lengths
    block_q, block_k = mask.BLOCK_SIZE
    shape = (1, mask.kv_indices.shape[1], -(-q_len // block_q), -(-kv_len // block_k))
    assert mask.kv_indices.shape == mask.full_kv_indices.shape == shape
    assert shape[1] in (1, heads)
    rows, keys = torch.arange(q_len)[:, None], torch.arange(kv_len)[None]
    out = torch.zeros(heads, q_len, kv_len, dtype=torch.bool)
    for head in range(heads):
        at = head if shape[1] > 1 else 0
        allowed = mask.mask_mod(torch.tensor(0), torch.tensor(head), rows, keys).broadcast_to(q_len, kv_len)
        assert allowed.dtype == torch.bool
        seen = set()
        for full, number, index in (
            (False, mask.kv_num_blocks, mask.kv_indices),
            (True, mask.full_kv_num_blocks, mask.full_kv_indices),
        ):
            assert number.dtype == index.dtype == torch.int32
            for row in range(shape[2]):
                listed = index[0, at, row, : number[0, at, row]].tolist()
                assert listed == sorted(set(listed)), "tiles are listed once, in order"
                for tile in listed:
                    assert (row, tile) not in seen, "partial and full tiles are disjoint"
                    seen.add((row, tile))
                    place = slice(row * block_q, (row + 1) * block_q), slice(tile * block_k, (tile + 1) * block_k)
                    if full:
                        ragged = (row + 1) * block_q > q_len or (tile + 1) * block_k > kv_len
                        assert not ragged, "torch lists ragged tiles as partial"
                    out[head][place] = True if full else allowed[place]
    return out.numpy()


def attention(mask: BlockMask, heads: int, compiled: bool = False) -> tuple[list, list]:
    """q, k and v, and output and LSE of torch's flex_attention in float64.

    Uncompiled it evaluates the mask_mod on all pairs, whatever the tile lists say: `expanded` is what checks those.
    """
    q_len, kv_len = mask.seq_lengths
    made = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(2, heads, n, 8, dtype=torch.float64, generator=made) for n in (q_len, kv_len, kv_len))
    before = module._FLEX_ATTENTION_DISABLE_COMPILE_DEBUG
    module._FLEX_ATTENTION_DISABLE_COMPILE_DEBUG = not compiled  # tracing takes seconds and changes no result
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "flex_attention called without torch.compile")
            out, aux = module.flex_attention(q, k, v, block_mask=mask, return_aux=module.AuxRequest(lse=True))
    finally:
        module._FLEX_ATTENTION_DISABLE_COMPILE_DEBUG = before
    return [q, k, v], [out, aux.lse]


def dense(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: np.ndarray) -> list[torch.Tensor]:
    """ref64: softmax over the allowed keys; empty rows give 0 and LSE -inf."""
    scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
    scores = scores.masked_fill(~torch.from_numpy(mask), -torch.inf)
    lse = torch.logsumexp(scores, -1)
    out = torch.exp(scores - lse.masked_fill(lse == -torch.inf, 0)[..., None]) @ v
    return [out, lse]
