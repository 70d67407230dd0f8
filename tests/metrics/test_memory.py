"""Memory grows with tokens, not with their square."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
import torch

import pattern_studio as ps
from pattern_studio.capture import LayerCapture
from pattern_studio.metrics import row_recall
from tests.metrics.captures import capture_of

TOKENS = 8192

# Bytes, of this program alone: ru_maxrss (bytes on macOS) starts at the peak of the process that started it.
PEAK = """
import resource
from pathlib import Path


def peak():
    status = Path("/proc/self/status")
    if status.exists():
        return int(status.read_text().split("VmHWM:")[1].split()[0]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


"""

# A process of its own: its peak is its own, and nothing freed before can hide what is allocated.
SCRIPT = (
    PEAK
    + f"""
import torch
import pattern_studio as ps
from pattern_studio.capture import Capture, LayerCapture
from pattern_studio.metrics import analyze

torch.set_num_threads(1)
q, k, v = (torch.randn(1, n, 8, generator=torch.Generator().manual_seed(n)) for n in (256, 256, 256))
small = Capture({{0: LayerCapture(q, k, v)}}, "m", "t", ("x",) * 256, 0.3, True)
pattern = ps.parse("causal & (window(63, 0) | sink(4))")
analyze(pattern, small)  # whatever is loaded on first use
q, k, v = (torch.randn(1, {TOKENS}, 8, generator=torch.Generator().manual_seed(n)) for n in (1, 2, 3))
long = Capture({{0: LayerCapture(q, k, v)}}, "m", "t", ("x",) * {TOKENS}, 0.3, True)
before = peak()
report = analyze(pattern, long)
print(peak() - before, report.recall.mean)
"""
)


def test_no_n_by_n_array():
    result = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True, timeout=200)
    grown, recall = result.stdout.split()
    assert 0 < float(recall) < 1
    # Chunks take about 80 MiB whatever the length; one n x n array takes 256 MiB in float32 and 64 as booleans.
    assert int(grown) < 128 * 2**20, f"{int(grown) / 2**20:.0f} MiB for {TOKENS} tokens"


WIDE = (
    PEAK
    + """
import sys
import torch
import pattern_studio as ps
from pattern_studio.capture import Capture, LayerCapture
from pattern_studio.metrics import analyze

tokens = int(sys.argv[1])
q, k, v = (torch.randn(8, tokens, 64, generator=torch.Generator().manual_seed(n)).half() for n in (1, 2, 3))
capture = Capture({0: LayerCapture(q, k, v)}, "m", "t", ("x",) * tokens, 0.125, True)
analyze(ps.parse("causal & (window(1023, 0) | sink(64))"), capture, metrics=["recall", "output_error", "oracle"])
print(peak())
"""
)


def test_32_thousand_tokens_of_eight_heads_fit_in_two_gigabytes():
    peaks = []
    for tokens in (2048, 4096):
        command = [sys.executable, "-c", WIDE, str(tokens)]
        told = subprocess.run(command, capture_output=True, text=True, check=True, timeout=200).stdout
        peaks.append(int(told))
    # Inputs, their float32 copies and what rows keep grow with tokens, chunks don't; a third of the line is a reserve
    # for tiles, which grow with their square but are 2 MiB at 32,768 tokens.
    grown = (peaks[1] - peaks[0]) / (4096 - 2048)
    expected = peaks[1] + grown * (32768 - 4096)
    assert expected * 4 / 3 < 2 * 10**9, f"{expected / 1e6:.0f} MB expected at 32,768 tokens, from {peaks}"


@pytest.mark.parametrize("text", ["causal & (window(255, 0) | sink(4))", "causal & dilated(511, 0, rate=7)"])
def test_two_lses_equal_the_full_matrix_at_4096_tokens(text):
    tokens, generator = 4096, torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(1, tokens, 8, generator=generator) * 1.5 for _ in range(3))
    found = row_recall(ps.parse(text), capture_of(LayerCapture(q, k, v), scale=8**-0.5, causal=True), 0)[0]
    scores = (q[0].double() @ k[0].double().T).numpy() * 8**-0.5
    dense = np.exp(np.where(np.tri(tokens, dtype=bool), scores, -np.inf))
    kept = np.where(ps.dense_mask(ps.parse(text), ps.Problem(tokens))[0], dense, 0)
    np.testing.assert_allclose(found, kept.sum(1) / dense.sum(1), rtol=2e-5)
