"""Captures as .npz: the same capture as from safetensors, written by us or by numpy, and hostile files refused."""

from __future__ import annotations

import io
import json
import pickle
import zipfile
from dataclasses import replace

import numpy as np
import pytest
import torch

from pattern_studio.capture import Capture, LayerCapture
from pattern_studio.errors import StudioError

from .test_files import METADATA, tensors


def arrays(**change: np.ndarray | None) -> dict[str, np.ndarray]:
    parts = {name: tensor.numpy() for name, tensor in tensors().items()} | change
    return {name: part for name, part in parts.items() if part is not None}


def header(**change: object) -> np.ndarray:
    return np.frombuffer(json.dumps(METADATA | change).encode(), np.uint8)


def saved(save=np.savez, **parts: np.ndarray) -> bytes:
    file = io.BytesIO()
    save(file, **parts)
    return file.getvalue()


def test_what_numpy_writes_is_the_capture(tmp_path):
    capture = Capture.load(saved(header=header(), **arrays()))
    for name, tensor in capture.layers[3].named().items():
        assert torch.equal(tensor, tensors()[f"layers.3.{name}"])
    assert (capture.tokens, capture.scale, capture.causal) == (("a", " b", "c"), 0.5, True)
    (tmp_path / "mine.npz").write_bytes(saved(header=header(), **arrays()))
    assert Capture.load(tmp_path / "mine.npz").model == capture.model


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
def test_both_files_hold_the_same_bits(tmp_path, dtype):
    layer = LayerCapture(*(torch.randn(heads, 5, 4).to(dtype) for heads in (4, 2, 2)))
    capture = Capture({2: layer}, "toy, CC0", "none", tuple("abcde"), 0.5, False)
    for name in ("a.npz", "a.safetensors"):
        capture.save(tmp_path / name)
        again = Capture.load(tmp_path / name)
        assert all(
            torch.equal(a, b) for a, b in zip(again.layers[2].named().values(), layer.named().values(), strict=True)
        )
        assert (again.tokens, again.causal, again.dtype) == (capture.tokens, False, dtype)


def test_numpy_has_no_bfloat16(tmp_path):
    layer = LayerCapture(*(torch.zeros(1, 1, 1, dtype=torch.bfloat16) for _ in "qkv"))
    with pytest.raises(StudioError, match=r"got bfloat16 in layers\.0\.q; save as \.safetensors"):
        Capture({0: layer}, "toy", "none", ("a",), 1.0, True).save(tmp_path / "a.npz")


def test_numpys_gradients_are_read_in_their_own_dtype():
    found = Capture.load(saved(header=header(), **arrays(**{"layers.3.gradients": np.ones((2, 4, 3, 4), "f2")})))
    assert found.dtype == torch.float32
    assert torch.equal(found.gradients.layers[3], torch.ones(2, 4, 3, 4, dtype=torch.float16))


def test_gradients_of_bfloat16_are_not_for_numpy(tmp_path):
    found = Capture.load(saved(header=header(), **arrays(**{"layers.3.gradients": np.ones((2, 4, 3, 4), "f2")})))
    with pytest.raises(StudioError, match=r"got bfloat16 in layers\.3\.gradients; save as \.safetensors"):
        replace(found, gradients=found.gradients.to(torch.bfloat16)).save(tmp_path / "a.npz")


def pickled() -> bytes:
    file = io.BytesIO()
    torch.save({"layers.3.q": torch.zeros(1)}, file)
    return file.getvalue()


def with_member(name: str, data: bytes, how: int = zipfile.ZIP_STORED) -> bytes:
    file = io.BytesIO(saved(header=header(), **arrays()))
    with zipfile.ZipFile(file, "a", how) as archive:
        archive.writestr(name, data)
    return file.getvalue()


def claims(shape: tuple[int, ...]) -> bytes:
    text = repr({"descr": "<f4", "fortran_order": False, "shape": shape})
    return np.lib.format.MAGIC_PREFIX + bytes((1, 0)) + len(text).to_bytes(2, "little") + text.encode()


HOSTILE = {
    "compressed": (lambda: saved(np.savez_compressed, header=header(), **arrays()), "with stored members, got compre"),
    "torch.save": (pickled, "a zip file with a pickle, as torch.save writes it; it is not opened"),
    "objects": (
        lambda: saved(header=header(), **arrays(**{"layers.3.q": np.array([{}])})),
        "dtype 'object': plain row",
    ),
    "no header": (lambda: saved(**arrays()), "with a header, got one without"),
    "header of numbers": (lambda: saved(header=header(scale=0.5), **arrays()), "maps strings to strings"),
    "integers": (lambda: saved(header=header(), **arrays(**{"layers.3.q": np.zeros((4, 3, 4), int)})), "got 'int64'"),
    "big endian": (
        lambda: saved(header=header(), **arrays(**{"layers.3.q": np.zeros((4, 3, 4), ">f4")})),
        r"to be float16, float32, float64, got '>f4'",
    ),
    "no v": (lambda: saved(header=header(), **arrays(**{"layers.3.v": None})), r"got no layers\.3\.v"),
    "NaN": (lambda: saved(header=header(), **arrays(**{"layers.3.k": np.full((2, 3, 4), np.nan, "f4")})), "24 NaN"),
    "gradients of other tokens": (
        lambda: saved(header=header(), **arrays(**{"layers.3.gradients": np.zeros((1, 4, 5, 4), "f4")})),
        r"expected gradients \[draws, 4, 3, 4\] in layer 3, as its queries, got \[1, 4, 5, 4\]",
    ),
    "a member outside": (lambda: with_member("../../evil", b"x"), r"member '../../evil' is no \.npy array"),
    "2 GB claimed": (lambda: with_member("layers.4.q.npy", claims((1 << 29,))), "but has 0 bytes"),
    "cut": (lambda: saved(header=header(), **arrays())[:-30], "a damaged or other one"),
    "100,000 members": (lambda: b"PK\x03\x04" + b"PK\x01\x02" * 100_000, "at most 10,000 members, got 100,000"),
    "other tensors": (lambda: saved(header=header(), x=np.zeros(1, "f4")), r"tensors layers\.\{L\}\.q"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_file_is_refused(name):
    made, error = HOSTILE[name]
    with pytest.raises(StudioError, match=error):
        Capture.load(made())


def test_nothing_of_a_pickle_runs(tmp_path):
    class Evil:
        def __reduce__(self):
            return (tmp_path.joinpath("ran").touch, ())

    array = np.empty(1, object)
    array[0] = Evil()
    for data in (saved(header=header(), evil=array), with_member("data.pkl", pickle.dumps(Evil()))):
        with pytest.raises(StudioError):
            Capture.load(data)
    assert not (tmp_path / "ran").exists()
