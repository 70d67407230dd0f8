"""Files that visitors could upload to do harm or by mistake, and what is said of each."""

from __future__ import annotations

import json
import pickle
import struct
import zipfile
from functools import cache
from io import BytesIO
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save

from pattern_studio.capture import Capture

from .toy import npy, toy


class Evil:
    """Runs when it is unpickled: makes a file."""

    def __init__(self, ran: Path) -> None:
        self.ran = ran

    def __reduce__(self) -> tuple:
        return (Path.touch, (self.ran,))


def pt(ran: Path) -> bytes:
    file = BytesIO()
    torch.save({"q": Evil(ran)}, file)
    return file.getvalue()


def objects(ran: Path) -> bytes:
    array = np.empty(1, object)
    array[0] = Evil(ran)
    file = BytesIO()
    np.savez(file, header=array)
    return file.getvalue()


@cache
def bomb() -> bytes:
    """80 MB of zeros in less than a tenth of a megabyte."""
    file = BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("mask.npy", npy(np.zeros((1, 1), bool)) + bytes(80 << 20))
    return file.getvalue()


def outside() -> bytes:
    """A zip file whose members would lie elsewhere, one of them as a link."""
    file = BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("../../../evil.npy", npy(np.eye(2, dtype=bool)))
        link = zipfile.ZipInfo("passwd")
        link.external_attr = 0o120777 << 16
        archive.writestr(link, "/etc/passwd")
    return file.getvalue()


def two_gigabytes() -> bytes:
    """A safetensors header that promises 2 GB and a few bytes after it."""
    entry = {"dtype": "F32", "shape": [1, 1 << 19, 1 << 10], "data_offsets": [0, 1 << 31]}
    header = json.dumps({"layers.0.q": entry}).encode()
    return struct.pack("<Q", len(header)) + header + bytes(64)


def changed(seed: int = 0, scale: str | None = None, tokens: list[str] | None = None, **tensors: torch.Tensor) -> bytes:
    """A capture with other tensors or metadata, past all checks of ours."""
    capture: Capture = toy(seed)
    parts = {f"layers.{n}.{k}": t for n, layer in capture.layers.items() for k, t in layer.named().items()}
    metadata = {
        "format": "pattern-studio-capture/1",
        "model": capture.model,
        "text": capture.text,
        "tokens": json.dumps(tokens or list(capture.tokens)),
        "scale": scale or "0.35",
        "causal": "true",
        "dtype": "float32",
    }
    return save(parts | tensors, metadata)


def gradients(value: float, layers: tuple[int, ...] = (3, 5)) -> dict[str, torch.Tensor]:
    return {f"layers.{n}.gradients": torch.full((2, 4, 96, 8), value) for n in layers}


def minds(projection: float = 1.0, stream: float = 1.0, rows: float = 1.0) -> dict[str, torch.Tensor]:
    sizes = {"rows": ((4, 96), rows), "projection": ((32, 32), projection), "stream": ((96,), stream)}
    return {f"layers.{n}.{name}": torch.full(*one) for n in (3, 5) for name, one in sizes.items()}


def not_a_number() -> torch.Tensor:
    tensor = torch.zeros(4, 96, 8)
    tensor[1, 2, 3] = torch.nan
    return tensor


@cache
def captures(ran: Path) -> dict[str, tuple[bytes, str]]:
    """Name -> (bytes, words of the sentence); none of them is a capture, and `ran` appears if one is run."""
    whole = changed()
    return {
        "empty.npz": (b"", "expected a file with something in it, got an empty one; save it again"),
        "notes.txt": (b"causal & window(3, 0)", "the file is truncated or of another type; get it again"),
        "picture.png": (b"\x89PNG\r\n\x1a\n" + bytes(200), "the file is truncated or of another type; get it again"),
        "model.pt": (pt(ran), "a zip file with a pickle, as torch.save writes it; it is not opened"),
        "old.pkl": (pickle.dumps(Evil(ran)), "expected no pickle"),
        "objects.npz": (objects(ran), "never objects, which are pickles"),
        "cut.safetensors": (whole[: len(whole) // 2], "it is truncated; get it again"),
        "huge.safetensors": (two_gigabytes(), "it is truncated; get it again"),
        "bomb.npz": (bomb(), "expected an .npz file with stored members, got compressed or locked ones"),
        "outside.npz": (outside(), "expected an .npz file with a header, got one without"),
        "nan.safetensors": (changed(**{"layers.3.q": not_a_number()}), "to be finite, got 1 NaN or infinite values"),
        "shape.safetensors": (changed(**{"layers.3.v": torch.zeros(2, 96, 4)}), "to have q's tokens and head_dim"),
        "text.safetensors": (changed(tokens=["a", "b"]), "expected one token string per position, got 2 strings for"),
        "scale.safetensors": (changed(scale="1e300"), "expected scores and values that float32 can hold"),
        "some-gradients.safetensors": (
            changed(**gradients(1.0, (3,))),
            "expected gradients of every layer of the capture, [3, 5]",
        ),
        "huge-gradients.safetensors": (
            changed(**gradients(1e20)),
            "expected gradients whose fourth powers float32 can hold",
        ),
        "some-minds.safetensors": (
            changed(**{name: part for name, part in minds().items() if name != "layers.5.stream"}),
            "expected rows, projection, stream together, got no layers.5.stream",
        ),
        "minds-of-nothing.safetensors": (changed(**minds(rows=0.0)), "expected a row that the loss minds, got 0 for"),
        "minds-below-0.safetensors": (changed(**minds(rows=-1.0)), "expected rows of layer 3 to be finite and from 0"),
        "no-stream.safetensors": (changed(**minds(stream=0.0)), "expected a residual stream that is longer than 0"),
        "hardly-a-stream.safetensors": (
            changed(**minds(stream=1e-38)),
            "expected projections and streams whose shares float32 can hold",
        ),
        "infinite-gradients.safetensors": (
            changed(**gradients(torch.inf)),
            "gradients of layer 3 to be finite, got 6144 NaN or",
        ),
    }


@cache
def patterns(ran: Path) -> dict[str, tuple[bytes, str]]:
    """The same for what is opened in Design."""
    mask = np.tri(64, dtype=bool)
    return {
        "empty.json": (b"", "got an empty one"),
        "notes.txt": (b"causal & window(3, 0)", "or a mask as .npy or .npz, got a file that begins with b'causal &'"),
        "other.json": (b'{"schema": "someone/else"}', "expected a schema that can be read"),
        "deep.json": (b'{"schema": ' + b"[" * 100_000, "expected JSON text, got something else"),
        "model.pt": (pt(ran), "a zip file with a pickle, as torch.save writes it; it is not opened"),
        "old.pkl": (pickle.dumps(Evil(ran)), "expected no pickle"),
        "objects.npy": (npy(np.array([Evil(ran)], object)), "never objects, which are pickles"),
        "bomb.npz": (bomb(), "unpacks to at most 67,108,864 bytes, got one that states 83,886,"),
        "outside.npz": (outside(), "with one array, got 2"),
        "huge.safetensors": (two_gigabytes(), "expected a safetensors header with metadata of strings"),
        "cut.npy": (npy(mask)[:-5], "claims shape"),
        "nan.npy": (npy(np.full((8, 8), np.nan)), "holds True for what is allowed and False for the rest"),
        "flat.npy": (npy(np.zeros(5, bool)), "a token mask has the shape [q_len, kv_len]"),
        "large.npy": (npy(np.zeros((3000, 3000), bool)), "at most 4,194,304 cells, got 3000 x 3000"),
        "noise.npy": (npy(np.random.default_rng(0).random((700, 700)) < 0.5), "save a cell for each tile"),
    }
