"""Capture objects made in Python, and the bundled one."""

from __future__ import annotations

import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from pattern_studio.capture import (
    Capture,
    LayerCapture,
    LayerMinds,
    LossGradients,
    Minds,
    bundled,
    bundled_path,
    container,
)
from pattern_studio.errors import StudioError


def layer(dtype: torch.dtype = torch.float32) -> LayerCapture:
    return LayerCapture(
        torch.ones(4, 3, 2, dtype=dtype), torch.ones(2, 3, 2, dtype=dtype), torch.ones(2, 3, 2, dtype=dtype)
    )


def make(**change: Any) -> Capture:
    fields = {
        "layers": {1: layer()},
        "model": "toy",
        "text": "none",
        "tokens": ("a", "b", "c"),
        "scale": 0.5,
        "causal": True,
    }
    return Capture(**(fields | change))


def minds(**parts: Any) -> LayerMinds:
    usual = {"rows": torch.ones(4, 3), "projection": torch.ones(5, 8, dtype=torch.float16), "stream": torch.ones(3)}
    return LayerMinds(**usual | parts)


def gradients(*shape: int, dtype: torch.dtype = torch.float32, number: int = 1) -> LossGradients:
    return LossGradients({number: torch.ones(shape or (2, 4, 3, 2), dtype=dtype)})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"layers": {}}, r"expected a mapping of at least one layer, got \{\}; record a layer"),
        ({"layers": [layer()]}, "expected a mapping of at least one layer"),
        (
            {"layers": {-1: layer()}},
            "expected layer numbers from 0 up, each with a LayerCapture, got -1 with a LayerCapture",
        ),
        ({"layers": {True: layer()}}, "expected layer numbers from 0 up, each with a LayerCapture, got True"),
        ({"layers": {0: torch.ones(1)}}, "got 0 with a Tensor; build each layer with LayerCapture"),
        ({"model": None}, "expected the model in words, with its licence, got None; state it"),
        ({"text": "a \ud800"}, "got a lone surrogate"),
        ({"tokens": "abc"}, "expected tokens as strings, one per position, got 'abc'"),
        ({"tokens": ["a"]}, r"got 1 strings for the 3 positions of layers\.1; record both from one text"),
        ({"scale": True}, "expected a finite scale above 0, got True"),
        ({"scale": 0}, "expected a finite scale above 0, got 0"),
        ({"causal": 1}, "expected causal to be True or False, got 1"),
        ({"layers": {1: layer(), 2: layer(torch.float16)}}, r"got float16 in layers\.2 and float32 in the first"),
        (
            {"layers": {1: layer(torch.float8_e5m2)}},
            "expected all layers in one of float16, bfloat16, float32, float64",
        ),
        ({"gradients": {1: torch.ones(2, 4, 3, 2)}}, "expected gradients as LossGradients, got dict; see loss_grad"),
        ({"gradients": LossGradients({1: None})}, "expected gradients of layer 1 as a tensor, got NoneType"),  # pyright: ignore[reportArgumentType]
        ({"gradients": gradients(number=2)}, r"every layer of the capture, \[1\], or no gradients, got those of \[2\]"),
        ({"gradients": gradients(2, 4, 3, 1)}, r"\[draws, 4, 3, 2\] in layer 1, as its queries, got \[2, 4, 3, 1\]"),
        ({"gradients": gradients(dtype=torch.float64)}, r"got torch\.float64 in layer 1; convert them"),
        (
            {
                "layers": {1: layer(), 2: layer()},
                "gradients": LossGradients({1: torch.ones(2, 4, 3, 2), 2: torch.ones(1, 4, 3, 2)}),
            },
            r"one dtype and one number of draws, got torch\.float32 and 1 draws in layer 2, unlike the layers before",
        ),
        ({"gradients": gradients().to(torch.float16), "layers": {3: layer()}}, r"\[3\], or no gradients"),
    ],
)
def test_bad_capture_is_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(StudioError, match=message):
        make(**change)


def test_dtypes_of_one_layer_agree() -> None:
    ones = torch.ones(2, 3, 4)
    with pytest.raises(
        StudioError, match=r"expected v as q, of torch.float32 on cpu, got torch.float16 on cpu; convert"
    ):
        LayerCapture(ones, ones, ones.half())
    with pytest.raises(
        StudioError, match=r"expected q to be floating \[heads, tokens, head_dim\], got \[2, 3, 4\] torch.int64"
    ):
        LayerCapture(ones.long(), ones.long(), ones.long())
    with pytest.raises(StudioError, match=r"expected k to be floating .*, got list"):
        LayerCapture(ones, [], ones)  # pyright: ignore[reportArgumentType]


def test_capture_does_not_follow_the_mapping_it_was_made_from() -> None:
    layers = {2: layer(), 1: layer()}
    capture = make(layers=layers, tokens=["a", "b", "c"], scale=1)
    layers.clear()
    assert (list(capture.layers), capture.tokens, type(capture.scale)) == ([1, 2], ("a", "b", "c"), float)


def test_gradients_go_where_the_capture_goes(tmp_path: Path) -> None:
    given = {2: torch.ones(2, 4, 3, 2), 1: torch.zeros(2, 4, 3, 2)}
    capture = make(layers={1: layer(), 2: layer()}, gradients=LossGradients(given))
    given.clear()
    assert capture.gradients is not None
    assert list(capture.gradients.layers) == [1, 2]
    moved = capture.to("cpu").gradients
    assert moved is not None
    assert torch.equal(moved.of(capture, 2), torch.ones(2, 4, 3, 2))
    unmeasured = pickle.loads(pickle.dumps(replace(capture, gradients=None)))
    assert unmeasured.gradients is None
    assert torch.equal(pickle.loads(pickle.dumps(capture)).gradients.layers[2], torch.ones(2, 4, 3, 2))


def test_gradients_are_an_extra_of_the_file(tmp_path: Path) -> None:
    """Without them a file has the bytes that it always had, and with them the same tensors and metadata beside."""
    plain = make()
    plain.save(tmp_path / "plain.safetensors")
    again = replace(replace(plain, gradients=gradients(dtype=torch.bfloat16)), gradients=None)
    again.save(tmp_path / "again.safetensors")
    assert (tmp_path / "plain.safetensors").read_bytes() == (tmp_path / "again.safetensors").read_bytes()
    replace(plain, gradients=gradients()).save(tmp_path / "more.safetensors")
    before, after = (container.read_container(tmp_path / f"{name}.safetensors") for name in ("plain", "more"))
    assert after[1] == before[1]
    assert sorted(after[0].keys() - before[0].keys()) == ["layers.1.gradients"]


def test_what_the_model_minds_goes_where_the_capture_goes(tmp_path: Path) -> None:
    """It is an extra of the file: without it the bytes are those that they were."""
    plain = make(layers={1: layer(), 2: layer()})
    given = {2: minds(), 1: minds(rows=torch.zeros(4, 3))}
    capture = replace(plain, minds=Minds(given))
    given.clear()
    for name, one in (("plain", plain), ("more", capture), ("again", replace(capture, minds=None))):
        one.save(tmp_path / f"{name}.safetensors")
    assert (tmp_path / "plain.safetensors").read_bytes() == (tmp_path / "again.safetensors").read_bytes()
    before, after = (container.read_container(tmp_path / f"{name}.safetensors") for name in ("plain", "more"))
    assert after[1] == before[1]
    names = [f"layers.{n}.{name}" for n in (1, 2) for name in ("projection", "rows", "stream")]
    assert sorted(after[0].keys() - before[0].keys()) == names
    for back in (Capture.load(tmp_path / "more.safetensors"), capture.to("cpu"), pickle.loads(pickle.dumps(capture))):
        assert back.minds is not None
        assert list(back.minds.layers) == [1, 2]
        for name, tensor in minds().named().items():
            found = back.minds.layers[2].named()[name]
            assert found.dtype == tensor.dtype
            assert torch.equal(found, tensor)


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({1: 3}, "expected what the model minds as Minds, got dict; see measured_minds"),
        (Minds({2: minds()}), r"of every layer of the capture, \[1\], or of none, got \[2\]; measure them in one call"),
        (Minds({1: torch.ones(4, 3)}), "expected LayerMinds of layer 1, got Tensor; see measured_minds"),  # pyright: ignore[reportArgumentType]
        (Minds({1: minds(rows=torch.ones(2, 3))}), r"expected rows of layer 1 to be \[4, 3\], got \[2, 3\]"),
        (
            Minds({1: minds(projection=torch.ones(5, 4))}),
            r"projection of layer 1 to be \[width, 8\], got \[5, 4\]; meas",
        ),
        (
            Minds({1: minds(projection=torch.ones(0, 8))}),
            r"projection of layer 1 to be \[width, 8\], got \[0, 8\]; meas",
        ),
        (Minds({1: minds(stream=None)}), r"expected stream of layer 1 to be \[3\], got NoneType"),
        (
            Minds({1: minds(stream=torch.ones(3).double())}),
            r"stream of layer 1 in torch.float16, .*, got torch.float64",
        ),
        (Minds({1: minds(rows=-torch.ones(4, 3))}), "rows of layer 1 to be finite and from 0 up, got another value"),
        (Minds({1: minds(stream=torch.tensor([1, 2, torch.nan]))}), "stream of layer 1 to be finite and from 0 up"),
        (
            Minds({1: minds(projection=torch.full((5, 8), torch.inf))}),
            "projection of layer 1 to be finite, got another",
        ),
        (Minds({1: minds(stream=torch.tensor([1.0, 0, 1]))}), "a residual stream that is longer than 0 in layer 1"),
        (Minds({1: minds(rows=torch.zeros(4, 3))}), "expected a row that the loss minds, got 0 for all"),
    ],
)
def test_what_a_model_can_not_mind(given: Any, error: str) -> None:
    with pytest.raises(StudioError, match=error):
        make(minds=given)


def test_bundled_file_is_written_as_it_was(tmp_path: Path) -> None:
    capture = Capture.load(bundled_path())
    assert capture.gradients is None
    capture.save(tmp_path / "again.safetensors")
    assert (tmp_path / "again.safetensors").read_bytes() == bundled_path().read_bytes()


def test_slices_of_one_tensor_can_be_saved(tmp_path: Path) -> None:
    fused = torch.randn(3, 6, 4).transpose(0, 1)  # [6, 3, 4], not contiguous
    capture = make(layers={0: LayerCapture(fused[:2], fused[2:4], fused[4:])})
    capture.save(tmp_path / "sliced.safetensors")
    assert torch.equal(Capture.load(tmp_path / "sliced.safetensors").layers[0].v, fused[4:])


def test_bundled_capture_is_real_attention() -> None:
    capture = bundled()
    assert bundled() is capture
    assert bundled_path().stat().st_size < 4.5e6
    assert (list(capture.layers), capture.scale, capture.causal, capture.dtype) == ([7, 20], 0.125, True, torch.float16)
    assert "Apache-2.0" in capture.model
    assert "public domain" in capture.text
    assert len(capture.tokens) == 1024
    assert "".join(capture.tokens).startswith("This document is a collection of slang terms")
    window_and_sinks = {}
    for number, one in capture.layers.items():
        assert (one.heads, one.kv_heads, one.tokens, one.head_dim) == (9, 3, 1024, 64)
        k = one.k.double().repeat_interleave(3, dim=0)
        scores = one.q.double() @ k.transpose(1, 2) * capture.scale
        causal = torch.ones(1024, 1024, dtype=torch.bool).tril()
        p = scores.masked_fill(~causal, float("-inf")).softmax(-1)  # [9, 1024, 1024]
        assert (p >= 0).all()  # false for NaN
        torch.testing.assert_close(p.sum(-1), torch.ones(9, 1024, dtype=torch.float64), rtol=0, atol=1e-12)
        kept = causal.triu(-127)
        kept[:, :4] = causal[:, :4]
        window_and_sinks[number] = round((p * kept).sum(-1).mean().item(), 3)
    # What data/README.md says of the layers' characters.
    assert window_and_sinks == {7: 0.493, 20: 0.783}
