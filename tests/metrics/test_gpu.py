"""The analyzer on a GPU says what it says on the CPU: run by `make test-gpu`; without CUDA the same code runs here."""

from __future__ import annotations

import dataclasses
import math
from unittest import mock

import numpy as np
import pytest
import torch

import pattern_studio as ps
from pattern_studio.capture import Capture, LayerCapture
from pattern_studio.metrics import METRICS, analyze, block_mass, row_recall
from pattern_studio.metrics.sparse_attention import sparse_attention
from tests.metrics.captures import Brute, capture_of

CUDA = pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"))
DEVICES = ["cpu", CUDA]
# Ragged for the blocks, grouped heads, an empty row, a row of one key, heads that differ, columns far apart.
PATTERNS = (
    "causal & (window(63, 0) | sink(4))",
    "causal & dilated(127, 0, rate=7)",
    "heads({0: causal, 1: causal & window(7, 0), 2: causal & strided(64), 3: rect(range(0, 100), range(0, 600))})",
)


def capture(dtype: torch.dtype = torch.float32, tokens: int = 517, causal: bool = True) -> Capture:
    def tensor(heads: int, seed: int) -> torch.Tensor:
        return torch.randn(heads, tokens, 32, generator=torch.Generator().manual_seed(seed), dtype=dtype) * 1.5

    return capture_of(
        *(LayerCapture(tensor(4, n), tensor(2, n + 1), tensor(2, n + 2)) for n in (0, 10)),
        scale=32**-0.5, causal=causal,
    )  # fmt: skip


def numbers(value: object, name: str = "") -> list[tuple[str, float]]:
    """Every number of a report's dict by its dotted name."""
    if dataclasses.is_dataclass(value):
        value = vars(value)
    if isinstance(value, dict):
        return [pair for key, part in value.items() for pair in numbers(part, f"{name}.{key}")]
    if isinstance(value, list | tuple):
        return [pair for at, part in enumerate(value) for pair in numbers(part, f"{name}.{at}")]
    return [(name, float(value))] if isinstance(value, int | float) else []


def assert_alike(found: dict, wanted: dict, relative: float) -> None:
    """Every figure agrees; which of equally bad rows is named may not."""
    for values in (found, wanted):
        for part in (values, *values["layers"]):
            for one in (part, *part.get("heads", ())):
                one.pop("worst_rows", None)
    mine, theirs = numbers(found), numbers(wanted)
    assert [name for name, _ in mine] == [name for name, _ in theirs]
    assert len(mine) > 300
    for (name, a), (_, b) in zip(mine, theirs, strict=True):
        assert math.isclose(a, b, rel_tol=relative, abs_tol=relative), f"{name}: {a} and {b}"


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("text", PATTERNS)
def test_every_figure_is_that_of_the_cpu(device, text):
    # Large chunks, as a GPU takes them, against chunks of a few rows.
    made = capture()
    with mock.patch("pattern_studio.metrics.chunk.CELLS", 2**26):
        found = analyze(ps.parse(text), made.to(device), block=(64, 16), metrics=METRICS).as_dict()
    with mock.patch("pattern_studio.metrics.chunk.CELLS", 20_000):
        wanted = analyze(ps.parse(text), made, block=(64, 16), metrics=METRICS).as_dict()
    assert_alike(found, wanted, 5e-5)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("causal", [True, False])
def test_float64_decides(device, causal):
    """Recall, output error, block mass and oracle against full float64 matrices."""
    pattern, block, number, made = ps.parse(PATTERNS[0]), (64, 16), 1, capture(causal=causal)
    brute, placed = Brute(made, number, pattern, block), made.to(device)
    np.testing.assert_allclose(row_recall(pattern, placed, number, block), brute.recall, rtol=1e-4, atol=1e-6)
    rows = np.minimum(64, 517 - np.arange(0, 517, 64))
    wanted = brute.tiles(brute.dense) / rows[:, None]
    np.testing.assert_allclose(block_mass(placed, number, block), wanted, rtol=1e-4, atol=1e-6)
    report = analyze(pattern, placed, block=block, layers=[number], metrics=["recall", "output_error", "oracle"])
    dense, sparse = brute.outputs
    error = np.linalg.norm(dense - sparse) / np.linalg.norm(dense)
    assert report.output_error.rel_l2 == pytest.approx(error, rel=1e-4)
    assert report.oracle_recall == pytest.approx(brute.oracle.mean(), rel=1e-5)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_dtypes(device, dtype):
    made = capture(torch.float64)
    layers = {n: LayerCapture(*(t.to(dtype) for t in layer.named().values())) for n, layer in made.layers.items()}
    placed = Capture(layers, "m", "t", made.tokens, made.scale, True)
    found, wanted = (
        analyze(ps.parse(PATTERNS[0]), one, metrics=METRICS).as_dict() for one in (placed.to(device), placed)
    )
    assert_alike(found, wanted, 1e-12 if dtype == torch.float64 else 5e-5)


@pytest.mark.parametrize("device", DEVICES)
def test_the_swapped_attention(device):
    layer = capture(torch.float64).layers[0]
    layout = ps.lower(ps.parse(PATTERNS[2]), q_len=517, heads=4)
    out = sparse_attention(layout, *(t.to(device) for t in layer.named().values()), 32**-0.5)
    assert out.device.type == device
    wanted = Brute(capture(torch.float64, causal=False), 0, ps.parse(PATTERNS[2]), (128, 128)).outputs[1]
    np.testing.assert_allclose(out.cpu().numpy(), wanted, atol=1e-12)


@pytest.mark.parametrize("device", [CUDA])
def test_no_n_by_n_array_on_the_gpu(device):
    """Peak memory beyond q, k and v grows with tokens and chunks, not with tokens squared."""
    tokens = 32768
    q, k, v = (torch.randn(1, tokens, 64, generator=torch.Generator().manual_seed(n)).half() for n in (1, 2, 3))
    made = Capture({0: LayerCapture(q, k, v)}, "m", "t", ("x",) * tokens, 0.125, True).to(device)
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    analyze(ps.parse("causal & (window(1023, 0) | sink(64))"), made, metrics=["recall", "output_error", "oracle"])
    grown = torch.cuda.max_memory_allocated() - before
    assert grown < 2**31, f"{grown / 2**20:.0f} MiB; one n x n array in float32 is {4 * tokens**2 / 2**20:.0f}"


def test_a_device_that_is_not_there_is_an_error():
    with pytest.raises(ps.StudioError, match=r"expected a device that torch can use here, got 'nonsense'.*take 'cpu'"):
        capture().to("nonsense")
    if not torch.cuda.is_available():
        with pytest.raises(ps.StudioError, match=r"expected a device that torch can use here, got 'cuda'.*take 'cpu'"):
            capture().to("cuda")
