"""Capture files: the exact round trip, and every way in which a hostile file is refused."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import save

from pattern_studio.capture import Capture, LayerCapture, LayerMinds, LossGradients, Minds, container
from pattern_studio.errors import StudioError

METADATA = {
    "format": "pattern-studio-capture/1",
    "model": "toy, Apache-2.0",
    "text": "made up, CC0",
    "tokens": json.dumps(["a", " b", "c"]),
    "scale": "0.5",
    "causal": "true",
    "dtype": "float32",
}


def tensors(heads: int = 4, kv_heads: int = 2, tokens: int = 3, layer: int = 3) -> dict[str, torch.Tensor]:
    shapes = {"q": (heads, tokens, 4), "k": (kv_heads, tokens, 4), "v": (kv_heads, tokens, 4)}
    return {
        f"layers.{layer}.{name}": torch.arange(12.0 * shape[0] * tokens / 3).view(shape)
        for name, shape in shapes.items()
    }


def file(change: dict[str, Any] | None = None, **metadata: str) -> bytes:
    """A valid file but for the changed tensors (None: left out) and metadata."""
    parts = tensors() | (change or {})
    return save({name: part for name, part in parts.items() if part is not None}, METADATA | metadata)


def minds(**change: torch.Tensor) -> dict[str, torch.Tensor]:
    parts = {"rows": torch.ones(4, 3), "projection": torch.ones(5, 16), "stream": torch.ones(3)} | change
    return {f"layers.3.{name}": part for name, part in parts.items()}


def raw(header: Any, data: bytes = b"") -> bytes:
    """A file with this header and data, whatever they are."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def claim(shape: Any, offsets: Any, dtype: Any = "F32") -> bytes:
    return raw(
        {"__metadata__": METADATA, "layers.3.q": {"dtype": dtype, "shape": shape, "data_offsets": offsets}}, bytes(96)
    )


def without(key: str) -> bytes:
    return save(tensors(), {name: value for name, value in METADATA.items() if name != key})


def with_value(value: float) -> torch.Tensor:
    tensor = torch.zeros(2, 3, 4)
    tensor[1, 2, 3] = value
    return tensor


HOSTILE: dict[str, tuple[Callable[[], bytes], str]] = {
    "empty": (lambda: b"", "expected a safetensors file, got 0 bytes .* truncated or of another type; get it again"),
    "a pickle": (lambda: b"\x80\x04\x95\x10" + b"\x00" * 7 + b"\xff" * 9, "expected a safetensors file, got 20 bytes"),
    "a zip": (lambda: b"PK\x03\x04" + bytes(range(60)), "expected an .npz file, got a damaged or other one"),
    "cut in the header": (lambda: file()[:40], "got 40 bytes that can't hold the header they announce"),
    "cut in the data": (lambda: file()[:-4], r"'layers.3.v' ends at byte 384, but the file has 380 .* truncated"),
    "bytes left over": (lambda: file() + b"1234", "got a damaged one .*; get it again"),
    "not JSON": (lambda: raw(b"{]"), "got a header that is not JSON"),
    "not UTF-8": (lambda: raw(b"\xff\xfe{}"), "got a header that is not JSON"),
    "nested deeply": (lambda: raw(b"[" * 100_000), "got a header that is not JSON"),
    "JSON of another shape": (lambda: raw([1, 2]), "a JSON object whose __metadata__ maps strings to strings"),
    "metadata of numbers": (lambda: raw({"__metadata__": {"format": 1}}), "maps strings to strings"),
    "no metadata": (lambda: save(tensors()), "expected a capture of format 'pattern-studio-capture/1', got ''"),
    "tensor without parts": (
        lambda: raw({"q": {"dtype": "F32"}}),
        "a dtype, a shape and two offsets, got {'dtype': 'F32'}",
    ),
    "negative shape": (lambda: claim([-1, 3, 4], [0, 96]), "a dtype, a shape and two offsets"),
    "a shape of fractions": (lambda: claim([1.5, 2], [0, 12]), "a dtype, a shape and two offsets"),
    "astronomic number": (lambda: claim([10**4000, 1], [0, 96]), "a dtype, a shape and two offsets"),
    "many dimensions": (lambda: claim([2**62] * 10_000, [0, 96]), "a dtype, a shape and two offsets"),
    "absurd shape": (
        lambda: claim([9, 10**12, 64], [0, 96]),
        r"takes 2304000000000000 bytes, but the header gives it 96;",
    ),
    "absurd shape and offsets": (
        lambda: claim([9, 10**12, 64], [0, 2304 * 10**12]),
        "but the file has 96 bytes of data",
    ),
    "integers": (lambda: claim([2, 3, 4], [0, 96], "I32"), "dtype F16, BF16, F32, F64, got 'I32'; convert it"),
    "overlapping tensors": (
        lambda: raw({n: {"dtype": "F32", "shape": [24], "data_offsets": [0, 96]} for n in ("a", "b")}, bytes(96)),
        "got a damaged one",
    ),
    "other format": (lambda: file(format="pt"), "got 'pt'; record one from a model"),
    "newer version": (
        lambda: file(format="pattern-studio-capture/2"),
        "got 'pattern-studio-capture/2'; .* update Pattern S",
    ),
    **{
        f"no {key}": (lambda key=key: without(key), f"expected metadata format, model, .*, got no {key}; save it again")
        for key in METADATA
        if key != "format"
    },
    "unknown metadata": (lambda: file(sparsity="0.9"), r"got also \['sparsity'\]; remove what is not listed"),
    "no model": (lambda: file(model=" "), "expected the model in words, with its licence, got ' '"),
    "no text": (lambda: file(text=""), "expected the text in words, with its licence, got ''"),
    "tokens not JSON": (lambda: file(tokens="a b c"), "expected tokens as a JSON list, got 'a b c'"),
    "tokens nested deeply": (lambda: file(tokens="[" * 100_000), "expected tokens as a JSON list"),
    "tokens of numbers": (lambda: file(tokens="[1, 2, 3]"), r"expected tokens as strings, .*, got \[1, 2, 3\]"),
    "tokens one string": (lambda: file(tokens='"abc"'), "expected tokens as strings, one per position, got 'abc'"),
    "lone surrogate": (lambda: file(tokens=r'["a", "b", "\ud800"]'), "got a lone surrogate"),
    "too few tokens": (lambda: file(tokens='["a", "b"]'), "got 2 strings for the 3 positions of layers.3"),
    "scale no number": (lambda: file(scale="half"), "expected scale as a number, got 'half'"),
    "scale NaN": (lambda: file(scale="nan"), "expected a finite scale above 0, got nan"),
    "scale negative": (lambda: file(scale="-0.125"), "expected a finite scale above 0, got -0.125"),
    "sensitivity not JSON": (lambda: file(sensitivity="1"), r"expected one weight for each of the capture's 1 layers"),
    "sensitivity cut": (
        lambda: file(sensitivity="[1"),
        r"expected sensitivity as a JSON list, got '\[1'; save it again",
    ),
    "sensitivity null": (lambda: file(sensitivity="null"), "expected sensitivity as a JSON list, got 'null'"),
    "sensitivity of other layers": (lambda: file(sensitivity="[1, 2]"), r"capture's 1 layers .*, got \[1, 2\]"),
    "sensitivity NaN": (lambda: file(sensitivity="[NaN]"), "a finite number from 0 up, got nan"),
    "sensitivity of words": (lambda: file(sensitivity='["much"]'), "a finite number from 0 up, got 'much'"),
    "causal unclear": (lambda: file(causal="True"), "expected causal 'true' or 'false', got 'True'"),
    "dtype untrue": (
        lambda: file(dtype="float16"),
        "q, k and v of the stated dtype 'float16', got float32 in 'layers.3.[qkv]'",
    ),
    "no tensors": (lambda: save({}, METADATA), r"expected a mapping of at least one layer, got {}"),
    "no v": (lambda: file({"layers.3.v": None}), "expected q, k and v of every layer, got no layers.3.v"),
    "unknown tensor": (
        lambda: file({"layers.3.o": torch.zeros(1)}),
        r"layers.\{L\}.q, .k, .v and, .* got 'layers.3.o'",
    ),
    "layer twice": (lambda: file({"layers.03.q": torch.zeros(1)}), r"layers.\{L\}.q, .k, .v and, .* got 'layers.03.q'"),
    "two dimensions": (lambda: file({"layers.3.k": torch.zeros(3, 4)}), r"layers.3: expected k to be .*, got \[3, 4\]"),
    "no heads": (
        lambda: file({"layers.3.k": torch.zeros(0, 3, 4), "layers.3.v": torch.zeros(0, 3, 4)}),
        r"layers.3: expected k to hold values, got shape \[0, 3, 4\]",
    ),
    "k of other tokens": (
        lambda: file({"layers.3.k": torch.zeros(2, 5, 4)}),
        r"layers.3: expected k to have q's tokens and head_dim \[3, 4\], got \[5, 4\]",
    ),
    "v of other heads": (
        lambda: file({"layers.3.v": torch.zeros(1, 3, 4)}),
        r"layers.3: expected k and v of one shape, got k \[2, 3, 4\] and v \[1, 3, 4\]",
    ),
    "heads that don't divide": (
        lambda: file({"layers.3.q": torch.zeros(3, 3, 4)}),
        "layers.3: expected the KV heads to divide the query heads, got 2 KV heads for 3",
    ),
    "layers of other lengths": (
        lambda: file(tensors(tokens=2, layer=4)),
        "got 3 strings for the 2 positions of layers.4",
    ),
    "NaN": (
        lambda: file({"layers.3.v": with_value(float("nan"))}),
        "layers.3: expected v to be finite, got 1 NaN or inf",
    ),
    "infinite": (
        lambda: file({"layers.3.k": with_value(float("-inf"))}),
        "layers.3: expected k to be finite, got 1 NaN",
    ),
    "gradients alone": (
        lambda: file({"layers.4.gradients": torch.zeros(1, 4, 3, 4)}),
        r"expected q, k and v of every layer, got no layers\.4\.q, layers\.4\.k, layers\.4\.v",
    ),
    "gradients of some layers": (
        lambda: file(tensors(layer=4) | {"layers.4.gradients": torch.zeros(1, 4, 3, 4)}),
        r"expected gradients of every layer of the capture, \[3, 4\], .*, got those of \[4\]; measure them",
    ),
    "gradients of other heads": (
        lambda: file({"layers.3.gradients": torch.zeros(1, 2, 3, 4)}),
        r"expected gradients \[draws, 4, 3, 4\] in layer 3, as its queries, got \[1, 2, 3, 4\]",
    ),
    "gradients without draws": (
        lambda: file({"layers.3.gradients": torch.zeros(0, 4, 3, 4)}),
        r"expected gradients \[draws, 4, 3, 4\] in layer 3, as its queries, got \[0, 4, 3, 4\]",
    ),
    "gradients of one dimension": (
        lambda: file({"layers.3.gradients": torch.zeros(1)}),
        r"expected gradients \[draws, 4, 3, 4\] in layer 3, as its queries, got \[1\]",
    ),
    "gradients of float64": (
        lambda: file({"layers.3.gradients": torch.zeros(1, 4, 3, 4, dtype=torch.float64)}),
        r"expected gradients in torch.float16, .*, got torch.float64 in layer 3; convert them",
    ),
    "gradients NaN": (
        lambda: file({"layers.3.gradients": torch.full((1, 4, 3, 4), torch.nan)}),
        "expected gradients of layer 3 to be finite, got 48 NaN or infinite values",
    ),
    "minds of one part": (
        lambda: file({"layers.3.rows": torch.ones(4, 3)}),
        r"expected rows, projection, stream together, got no layers\.3\.projection, layers\.3\.stream; meas",
    ),
    "minds of other heads": (
        lambda: file(minds(rows=torch.ones(2, 3))),
        r"expected rows of layer 3 to be \[4, 3\], got \[2, 3\]; measure the model and text that were recorded",
    ),
    "minds below 0": (
        lambda: file(minds(rows=torch.full((4, 3), -1.0))),
        "expected rows of layer 3 to be finite and from 0 up, got another value",
    ),
    "minds of no stream": (
        lambda: file(minds(stream=torch.zeros(3))),
        "expected a residual stream that is longer than 0 in layer 3; measure it again",
    ),
    "gradients cut": (
        lambda: file({"layers.3.gradients": torch.zeros(1, 4, 3, 4)})[:-4],
        r"ends at byte \d+, but the file has \d+ .* truncated",
    ),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_file_is_refused(name: str, tmp_path: Path) -> None:
    make, message = HOSTILE[name]
    data = make()
    with pytest.raises(StudioError, match=f"(?s)^capture: .*{message}") as error:
        Capture.load(data)
    assert len(str(error.value)) < 500, "one sentence, however long the file's own words"
    path = tmp_path / "hostile.safetensors"
    path.write_bytes(data)
    with pytest.raises(StudioError, match=f"(?s)hostile.safetensors: .*{message}"):
        Capture.load(path)


def test_valid_file_that_the_hostile_ones_are_made_from() -> None:
    capture = Capture.load(file())
    assert (capture.tokens, capture.scale, capture.causal) == (("a", " b", "c"), 0.5, True)


def test_sizes_are_checked_before_reading(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "huge.safetensors"
    with open(path, "wb") as stream:
        stream.truncate(container.MAX_FILE_BYTES + 1)  # sparse: takes no disk
    with pytest.raises(StudioError, match=r"expected at most 4294967296 bytes, got 4294967297; record fewer layers"):
        Capture.load(path)
    monkeypatch.setattr(container, "MAX_HEADER_BYTES", 100)
    with pytest.raises(StudioError, match=r"expected a header of at most 100 bytes, got \d+; record fewer tokens"):
        Capture.load(file())


def test_paths_that_cannot_be_used(tmp_path: Path) -> None:
    capture = Capture.load(file())
    with pytest.raises(
        StudioError, match=r"none\.st: expected a readable file, got 'No such file or directory'; check"
    ):
        Capture.load(tmp_path / "none.st")
    with pytest.raises(StudioError, match="expected a readable file, got 'Is a directory'"):
        Capture.load(tmp_path)
    with pytest.raises(StudioError, match="expected a readable file, got 'embedded null byte'"):
        Capture.load("a\0b")
    with pytest.raises(StudioError, match="expected a path or the bytes of a capture, got int; read the file"):
        Capture.load(3)  # pyright: ignore[reportArgumentType]
    with pytest.raises(
        StudioError, match="expected a writable path, got 'No such file or directory'; check its folder"
    ):
        capture.save(tmp_path / "none" / "file.safetensors")


@st.composite
def captures(draw: st.DrawFn) -> Capture:
    tokens = draw(st.lists(st.text(max_size=3), min_size=1, max_size=5))
    dtype = draw(st.sampled_from([torch.float16, torch.bfloat16, torch.float32, torch.float64]))
    head_dim = draw(st.integers(1, 3))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**32)))

    def some(heads: int) -> torch.Tensor:
        return torch.randn(heads, len(tokens), head_dim, generator=generator, dtype=torch.float64).to(dtype)

    layers = {}
    for number in draw(st.lists(st.integers(0, 999_999), min_size=1, max_size=3, unique=True)):
        kv_heads, group = draw(st.integers(1, 3)), draw(st.integers(1, 3))
        layers[number] = LayerCapture(some(kv_heads * group), some(kv_heads), some(kv_heads))
    words = st.text(min_size=1).filter(str.strip)
    scale = draw(st.floats(min_value=0, exclude_min=True, allow_infinity=False))
    weight = st.floats(0, 1e300)
    weights = draw(st.none() | st.lists(weight, min_size=len(layers), max_size=len(layers)).filter(any).map(tuple))
    draws, kind = draw(st.integers(0, 2)), draw(st.sampled_from([torch.float16, torch.bfloat16, torch.float32]))
    gradients = {n: torch.stack([some(one.heads) for _ in range(draws)]).to(kind) for n, one in layers.items() if draws}
    minds = {
        n: LayerMinds(some(one.heads)[..., 0].square().float() + 1, some(2).flatten(0, 1).repeat(1, one.heads).to(kind),
                      torch.ones(len(tokens)))
        for n, one in layers.items()
    }  # fmt: skip
    return Capture(
        layers, draw(words), draw(words), tuple(tokens), scale, draw(st.booleans()), weights,
        LossGradients(gradients) if draws else None, Minds(minds) if draw(st.booleans()) else None,
    )  # fmt: skip


@given(captures(), st.booleans())
def test_round_trip_is_exact(tmp_path_factory: pytest.TempPathFactory, capture: Capture, npz: bool) -> None:
    held = [*capture.layers.values(), *(capture.gradients.layers.values() if capture.gradients else ())]
    held += [part for one in (capture.minds.layers.values() if capture.minds else ()) for part in one.named().values()]
    npz = npz and not any(torch.bfloat16 in (getattr(one, "dtype", None), capture.dtype) for one in held)
    path = tmp_path_factory.getbasetemp() / f"round-trip.{'npz' if npz else 'safetensors'}"
    capture.save(path)
    back = Capture.load(path)
    for field in ("model", "text", "tokens", "scale", "causal", "dtype", "sensitivity"):
        assert getattr(back, field) == getattr(capture, field)
    assert list(back.layers) == list(capture.layers)
    for number, layer in capture.layers.items():
        for name, tensor in layer.named().items():
            assert torch.equal(back.layers[number].named()[name], tensor)
    assert (back.minds is None) == (capture.minds is None)
    if capture.minds and back.minds:
        assert list(back.minds.layers) == list(capture.layers)
        for number, one in capture.minds.layers.items():
            for name, tensor in one.named().items():
                assert back.minds.layers[number].named()[name].dtype == tensor.dtype
                assert torch.equal(back.minds.layers[number].named()[name], tensor)
    assert (back.gradients is None) == (capture.gradients is None)
    if capture.gradients and back.gradients:
        assert list(back.gradients.layers) == list(capture.layers)
        for number, tensor in capture.gradients.layers.items():
            assert back.gradients.layers[number].dtype == tensor.dtype
            assert torch.equal(back.gradients.layers[number], tensor)
    data = path.read_bytes()
    back.save(path)
    assert path.read_bytes() == data, "the same capture gives the same bytes"


@given(st.data())
def test_damaged_byte_never_escapes_as_another_error(data: st.DataObject) -> None:
    damaged = bytearray(file())
    for _ in range(data.draw(st.integers(1, 4))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    with suppress(StudioError):  # damage to a value or a word can't be noticed
        Capture.load(bytes(damaged))
