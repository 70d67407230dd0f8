"""The .npz files of exporters: the package's own reader and writer of such files, under the names used here."""

from __future__ import annotations

from ..archive import MAX_BYTES, MAX_HEADER, pack, parsed, unpack

__all__ = ["MAX_BYTES", "MAX_HEADER", "pack", "parsed", "unpack"]
