"""Masks in files: what numpy writes is read as it is, bombs and pickles cost one sentence."""

from __future__ import annotations

import io
import tracemalloc
import zipfile

import numpy as np
import pytest

from pattern_studio.errors import StudioError
from pattern_studio.reading import mask_in, read_mask


def npy(array: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.save(file, array, allow_pickle=True)
    return file.getvalue()


def npz(save, **arrays: np.ndarray) -> bytes:
    file = io.BytesIO()
    save(file, **arrays)
    return file.getvalue()


MASK = np.tri(70, dtype=bool)


@pytest.mark.parametrize(
    "data",
    [npy(MASK), npy(MASK.astype(np.int8)), npz(np.savez, any=MASK), npz(np.savez_compressed, any=MASK)],
    ids=["npy", "int8", "npz", "compressed"],
)
def test_what_numpy_writes(data):
    assert np.array_equal(mask_in(data), MASK)
    assert str(read_mask(mask_in(data)).pattern) == "causal"


def bomb(stated: int | None = None) -> bytes:
    """A small file that unpacks to 256 MB, or states another size."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("mask.npy", npy(MASK)[:128] + bytes(256 << 20))
    data = file.getvalue()
    assert len(data) < 1 << 20
    if stated is not None:
        real = (128 + (256 << 20)).to_bytes(4, "little")
        assert data.count(real) == 2  # beside the member, and in the list
        data = data.replace(real, stated.to_bytes(4, "little"))
    return data


HOSTILE = {
    "nothing": (lambda: b"", "got a file that begins with b''; save the array with numpy.save"),
    "text": (lambda: b"causal & window(3, 0)", r"begins with b'causal &'"),
    "a pickle": (lambda: b"\x80\x04K\x01.", "expected a mask as numpy.save or numpy.savez writes it"),
    "objects": (lambda: npy(np.array([{"a": 1}], object)), "never objects, which are pickles"),
    "columns first": (lambda: npy(np.asfortranarray(MASK)), "column by column.*with numpy.ascontiguousarray"),
    "cut": (lambda: npy(MASK)[:-1], "claims shape"),
    "cut in the header": (lambda: npy(MASK)[:20], r"is no \.npy array"),
    "two arrays": (lambda: npz(np.savez, a=MASK, b=MASK), "with one array, got 2: a, b"),
    "too large": (lambda: bytes((64 << 20) + 1), "at most 67,108,864 bytes, got 67,108,865"),
    "a bomb": (bomb, "unpacks to at most 67,108,864 bytes, got one that states 268,435,584"),
    "a bomb that lies": (lambda: bomb(5000), "a damaged or other one"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_file_is_refused_and_costs_little(name):
    made, error = HOSTILE[name]
    data = made()
    tracemalloc.start()
    try:
        with pytest.raises(StudioError, match=error):
            mask_in(data)
        assert tracemalloc.get_traced_memory()[1] < 3 * (1 << 20)
    finally:
        tracemalloc.stop()


def test_a_lie_about_the_size_is_caught_by_the_checksum():
    data = bytearray(npz(np.savez_compressed, mask=MASK))
    at = data.index(b"PK\x01\x02")
    data[at + 16] ^= 1  # the checksum in the list
    with pytest.raises(StudioError, match="a damaged or other one"):
        mask_in(bytes(data))
