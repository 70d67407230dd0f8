"""The whole path on real input: text -> layout -> export -> import -> attention on the bundled q, k, v."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

import pattern_studio as ps
from attention_core import block_sparse_attention, plan
from pattern_studio.capture import Capture, LayerCapture, bundled
from pattern_studio.cli import main
from pattern_studio.exporters import export, read

HEADS, TOKENS = 9, 160
PATTERNS = [
    "causal & (window(63, 0) | sink(4))",
    "causal & (dilated(15, 0, rate=4) | random(8, seed=1, past=True))",
    "heads({0:3: causal & window(31, 0), 3:6: causal & strided(7), 6:9: causal & (sink(16) | rect(64:160, 32:64))})",
]


@pytest.fixture(scope="module")
def real() -> tuple[Tensor, Tensor, Tensor, float]:
    """The bundled capture's first layer, cut to TOKENS: q, k, v with a batch of 1, and its scale."""
    capture = bundled()
    layer = next(iter(capture.layers.values()))
    return *(x[None, :, :TOKENS].float() for x in (layer.q, layer.k, layer.v)), capture.scale


def dense_softmax(q: Tensor, k: Tensor, v: Tensor, mask: np.ndarray, scale: float) -> Tensor:
    """Plain float64 attention under a token mask, written out."""
    group = q.shape[1] // k.shape[1]
    k, v = (x.double().repeat_interleave(group, 1) for x in (k, v))
    scores = (q.double() @ k.transpose(2, 3) * scale).masked_fill(~torch.from_numpy(mask), -torch.inf)
    return torch.softmax(scores, 3) @ v


@pytest.mark.parametrize("text", PATTERNS)
@pytest.mark.parametrize("target", ["json", "npz", "safetensors"])
@pytest.mark.parametrize("block", [(64, 64), (32, 8), (64, 1)])
def test_text_to_attention(text, target, block, real, tmp_path):
    q, k, v, scale = real
    problem = ps.Problem(TOKENS, heads=HEADS)
    pattern = ps.parse(text)
    file = tmp_path / f"pattern.{target}"
    content = export(pattern, problem, block, to=target).content
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    loaded = read(file)
    layout = loaded if isinstance(loaded, ps.BlockLayout) else ps.lower(loaded, problem, block=block)
    assert layout == ps.lower(pattern, problem, block=block)
    wanted = dense_softmax(q, k, v, ps.dense_mask(pattern, problem), scale)
    for backend in ("blocked", "reference"):
        out = block_sparse_attention(q, k, v, plan(layout), scale=scale, backend=backend)
        torch.testing.assert_close(out.double(), wanted, atol=1e-5, rtol=1e-5)


def test_the_fused_kernels_on_the_real_input(real):
    q, k, v, scale = (x[:, :, :96] if isinstance(x, Tensor) else x for x in real)
    problem = ps.Problem(96, heads=HEADS)
    pattern = ps.parse(PATTERNS[0])
    device = "cuda" if torch.cuda.is_available() else "cpu"
    q, k, v = (x.to(device) for x in (q, k, v))
    layout = ps.lower(pattern, problem, block=(32, 32))
    out = block_sparse_attention(q, k, v, plan(layout, device=device), scale=scale, backend="triton")
    wanted = dense_softmax(q.cpu(), k.cpu(), v.cpu(), ps.dense_mask(pattern, problem), scale)
    torch.testing.assert_close(out.cpu().double(), wanted, atol=2e-5, rtol=2e-5)


@pytest.mark.parametrize("text", PATTERNS[:2])
def test_the_recall_that_the_command_prints_is_brute_force(text, tmp_path, capsys):
    whole = bundled()
    cut = Capture(
        {n: LayerCapture(*(x[:, :TOKENS].contiguous() for x in (c.q, c.k, c.v))) for n, c in whole.layers.items()},
        whole.model,
        whole.text,
        whole.tokens[:TOKENS],
        whole.scale,
        whole.causal,
    )
    cut.save(tmp_path / "cut.safetensors")
    assert main(["analyze", text, "--capture", str(tmp_path / "cut.safetensors"), "--block", "32", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    mask = torch.from_numpy(ps.dense_mask(ps.parse(text), ps.Problem(TOKENS))[0])
    causal = torch.ones(TOKENS, TOKENS, dtype=torch.bool).tril()
    rows = []
    for layer in cut.layers.values():
        k = layer.k.double().repeat_interleave(HEADS // layer.k.shape[0], 0)
        scores = (layer.q.double() @ k.transpose(1, 2) * cut.scale).masked_fill(~causal, -torch.inf)
        rows.append((torch.softmax(scores, 2) * mask).sum(2))
    recall = torch.stack(rows)
    assert told["recall"]["mean"] == pytest.approx(recall.mean().item(), abs=1e-5)
    assert told["recall"]["min"] == pytest.approx(recall.min().item(), abs=1e-5)
    assert [layer["recall"]["mean"] for layer in told["layers"]] == pytest.approx(
        recall.mean((1, 2)).tolist(), abs=1e-5
    )


def test_stats_has_the_documented_fields(capsys):
    assert main(["stats", PATTERNS[0], "--q-len", "4096", "--block", "128", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert list(told) == [
        "pattern", "hash", "q_len", "kv_len", "q_offset", "block", "heads", "pairs", "density", "tiles",
        "block_efficiency", "empty_rows", "seconds", "peak_mb",
    ]  # fmt: skip
    assert set(told["density"]) == {"token", "token_of_causal", "block"}
    assert set(told["tiles"]) == {"total", "active", "full", "partial"}
    i, j = np.indices((4096, 4096), dtype=np.int32)
    assert told["pairs"] == ((j <= i) & ((i - j <= 63) | (j < 4))).sum()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["stats", "causal & windw(3, 0)", "--q-len", "8"], "did you mean 'window'"),
        (["stats", "causal", "--q-len", "-1"], "q_len must lie between"),
        (["stats", "causal"], "required: --q-len"),
        (["stats", "causal", "--q-len", "8", "--block", "a"], "--block takes whole numbers"),
        (["analyze", "causal", "--capture", "nowhere.safetensors"], "nowhere.safetensors"),
        (["export", "causal", "--q-len", "8", "--to", "flex"], "flex_attention"),
        (["show", "causal", "--q-len", "8", "--out", "picture.bmp"], ".png"),
    ],
)
def test_errors_are_one_line_and_exit_code_2(arguments, message):
    done = subprocess.run(
        [sys.executable, "-m", "pattern_studio.cli", *arguments], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert message in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert "Traceback" not in done.stderr


def test_show_writes_every_format(tmp_path: Path, capsys):
    for suffix, start in ((".png", b"\x89PNG"), (".svg", b"<svg"), (".html", b"<")):
        file = tmp_path / f"pattern{suffix}"
        assert main(["show", PATTERNS[0], "--q-len", "512", "--block", "32", "--out", str(file)]) == 0
        assert file.read_bytes().lstrip().startswith(start)
    assert main(["show", PATTERNS[0], "--q-len", "512"]) == 0
    assert "keys" in capsys.readouterr().out
