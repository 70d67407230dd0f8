"""Memory grows with tokens, not with their square."""

from __future__ import annotations

import subprocess
import sys

TOKENS = 8192

# A process of its own: its peak is its own, and nothing freed before can hide what is allocated.
SCRIPT = f"""
import resource
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
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
report = analyze(pattern, long)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before, report.recall.mean)
"""


def test_no_n_by_n_array():
    result = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True, timeout=200)
    grown, recall = result.stdout.split()
    unit = 1 if sys.platform == "darwin" else 1024  # ru_maxrss is in bytes there
    assert 0 < float(recall) < 1
    # Chunks take about 80 MiB whatever the length; one n x n array takes 256 MiB in float32 and 64 as booleans.
    assert int(grown) * unit < 128 * 2**20, f"{int(grown) * unit / 2**20:.0f} MiB for {TOKENS} tokens"
